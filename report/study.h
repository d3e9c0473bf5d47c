// The report of make demo, make study and the experiments: records of many trainings, cell by cell.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/analysis/leads.h"
#include "report/result.h"

namespace isentrope::report {

// The HTML page of what scripts/study wrote. Throws Error when the document is something else.
[[nodiscard]] std::string study_report(const nlohmann::json& study);

// What the trainings of one cell found together, with the leads as the study judges them. At least
// one record, all of one model and of the same lengths.
[[nodiscard]] Result cell_result(const std::vector<nlohmann::json>& records,
                                 const std::vector<analysis::Lead>& leads = {});

// What is done; then the verdicts in words: those of the primary family that was declared, and for
// each cell that has a lead those that are exploratory.
[[nodiscard]] std::vector<std::string> study_verdicts(const nlohmann::json& study);

}  // namespace isentrope::report
