// Overview of a study: the result of each cell, the clearest first.
#pragma once

#include <vector>

#include "tools/analysis/study.h"
#include "tools/report/page.h"

namespace isentrope::report {

// Returns the cells with records: a rule helps, hurts, undecided; each by the largest lead.
[[nodiscard]] std::vector<std::size_t> cells_by_result(const analysis::Study& study);

// Plots the leads of these cells at the longest length. At least one must have a lead.
[[nodiscard]] Plot overview_plot(const analysis::Study& study,
                                 const std::vector<std::size_t>& cells);

}  // namespace isentrope::report
