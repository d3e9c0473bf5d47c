// What an experiment found: members of result.json (docs/result-schema.md) and the text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/experiment.h"

namespace isentrope::lab {

// The member "evaluation", from any record.
[[nodiscard]] nlohmann::json evaluation_json(const nlohmann::json& record);

// The member "protocol".
[[nodiscard]] nlohmann::json protocol_json(const ExperimentOptions& options);

[[nodiscard]] std::string cpu_name();

// The verdicts, and every row at every length, as text for people.
[[nodiscard]] std::string summary(const nlohmann::json& result);

}  // namespace isentrope::lab
