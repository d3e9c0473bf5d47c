// Parts of the page of scripts/study: many trainings, cell by cell.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/analysis/study.h"
#include "tools/report/page.h"
#include "tools/report/result.h"

namespace isentrope::report {

// Returns the joint result of one cell's trainings, with leads as judged by the study. Needs at
// least one record; all must have the same model and lengths.
[[nodiscard]] Result cell_result(const std::vector<nlohmann::json>& records,
                                 const std::vector<analysis::Lead>& leads = {});

// Returns the cells with records: a rule helps, hurts, undecided; each by the largest lead.
[[nodiscard]] std::vector<std::size_t> cells_by_result(const analysis::Study& study);

// Plots the leads of these cells at the longest length. At least one must have a lead.
[[nodiscard]] Plot overview_plot(const analysis::Study& study,
                                 const std::vector<std::size_t>& cells);

}  // namespace isentrope::report
