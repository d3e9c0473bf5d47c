// Report of make demo, make study and the experiments: records of many trainings, cell by cell.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/analysis/differences.h"
#include "tools/report/result.h"

namespace isentrope::report {

// Returns the HTML page for the output of scripts/study. Throws Error for any other document.
[[nodiscard]] std::string study_report(const nlohmann::json& study);

// Returns the joint result of one cell's trainings, with leads as judged by the study. Needs at
// least one record; all must have the same model and lengths.
[[nodiscard]] Result cell_result(const std::vector<nlohmann::json>& records,
                                 const std::vector<analysis::Lead>& leads = {});

// Returns sentences: progress, verdicts of the declared primary family, exploratory ones by cell.
[[nodiscard]] std::vector<std::string> study_verdicts(const nlohmann::json& study);

}  // namespace isentrope::report
