// Record: what was measured of a trained model (measure.h), taken up again.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace isentrope::lab {

// What the file holds. Throws Error when that is no record: every member that is there is of its
// kind and size, so that whoever reads it later need not ask.
[[nodiscard]] nlohmann::json read_record(const std::filesystem::path& path);

// Whether its rows hold every measure. Those of a record that was written before a measure was
// thought of do not.
[[nodiscard]] bool holds_every_measure(const nlohmann::json& record);

}  // namespace isentrope::lab
