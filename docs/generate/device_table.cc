// Tables of speed on a GPU: Isentrope with lse alone and with all statistics beside its peers.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "docs/generate/tables.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

constexpr std::array kSystems = {"isentrope, lse alone", "isentrope",
                                 "torch cuDNN",          "torch flash",
                                 "torch FlexAttention",  "torch, two passes"};

// Returns a system's rate in TFLOP/s, or GB/s for a decode step; "-" if it did not run.
std::string rate_of(const json& row, std::string_view name) {
  for (const json& system : row.at("systems")) {
    if (system.at("name") != name) continue;
    const bool decodes = row.at("work").at("kind") == "decode";
    return fmt::format("{:.0f}", system.at("rate").get<double>() / (decodes ? 1e9 : 1e12));
  }
  return "-";
}

}  // namespace

std::string device_table(const std::filesystem::path& file) {
  const json found = json::parse(std::ifstream(file));
  Rows rows = {{"work", "lse alone", "all statistics", "cuDNN", "flash (torch)", "FlexAttention",
                "two passes of flash"}};
  for (const json& row : found.at("runs").at(0).at("rows")) {
    std::vector<std::string> cells = {row.at("work").at("name")};
    for (const char* system : kSystems) cells.push_back(rate_of(row, system));
    rows.push_back(cells);
  }
  const json& versions = found.at("versions");
  return markdown_table(rows) +
         fmt::format("\n{}, torch {}, Triton {}, {}.\n", found.at("machine").get<std::string>(),
                     versions.at("torch").get<std::string>(),
                     versions.at("triton").get<std::string>(), found.at("date").get<std::string>());
}

}  // namespace isentrope::docs
