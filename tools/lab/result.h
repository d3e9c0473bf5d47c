// Findings of an experiment: members of result.json (docs/result-schema.md) and a text summary.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/lab/experiment.h"

namespace isentrope::lab {

// Returns the member "evaluation", from any record.
[[nodiscard]] nlohmann::json evaluation_json(const nlohmann::json& record);

// Returns the member "protocol".
[[nodiscard]] nlohmann::json protocol_json(const ExperimentOptions& options);

[[nodiscard]] std::string cpu_name();

// Returns the verdicts, and every row at every length, as text.
[[nodiscard]] std::string summary(const nlohmann::json& result);

}  // namespace isentrope::lab
