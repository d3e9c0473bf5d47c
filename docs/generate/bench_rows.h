// Rows of a bench.json.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace isentrope::docs {

// Returns the row of a work in the first run, on one thread. Throws if there is none.
inline const nlohmann::json& row_of(const nlohmann::json& bench, std::string_view work) {
  for (const nlohmann::json& row : bench.at("runs").at(0).at("rows"))
    if (row.at("work").at("name") == work) return row;
  throw std::runtime_error(
      fmt::format("no row {} in the record of {}", work, bench.at("machine").get<std::string>()));
}

}  // namespace isentrope::docs
