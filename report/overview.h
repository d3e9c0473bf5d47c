// The overview of a study: what each of its cells says, the clearest first.
#pragma once

#include <vector>

#include "lab/analysis/study.h"
#include "report/page.h"

namespace isentrope::report {

// Cells with records: those where a rule helps, where one hurts, and where nothing is decided; of a
// kind the largest lead first.
[[nodiscard]] std::vector<std::size_t> cells_by_what_they_say(const analysis::Study& study);

// The leads of these cells at the longest length. At least one of them has a lead.
[[nodiscard]] Plot overview_plot(const analysis::Study& study,
                                 const std::vector<std::size_t>& cells);

}  // namespace isentrope::report
