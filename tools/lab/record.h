// Record: measurements of a trained model (measure.h), read from disk.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace isentrope::lab {

// Reads a record. Throws Error if malformed: existing members have the right type and size.
[[nodiscard]] nlohmann::json read_record(const std::filesystem::path& path);

// Returns whether its rows hold every measure. Records of earlier versions may lack some.
[[nodiscard]] bool holds_every_measure(const nlohmann::json& record);

}  // namespace isentrope::lab
