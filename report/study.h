// The report of make demo and make study: records of many trainings, cell by cell.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/result.h"

namespace isentrope::report {

// The HTML page of what scripts/study wrote. Throws Error when the document is something else.
[[nodiscard]] std::string study_report(const nlohmann::json& study);

// What the trainings of one cell found together. At least one record, all of one model and of the
// same lengths.
[[nodiscard]] Result cell_result(const std::vector<nlohmann::json>& records);

// For each cell that has a lead, its name and its verdicts in words.
[[nodiscard]] std::vector<std::string> study_verdicts(const nlohmann::json& study);

}  // namespace isentrope::report
