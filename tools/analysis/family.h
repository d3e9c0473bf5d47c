// Family: p-values that are judged together, each adjusted for their number. NaN means no p-value:
// it stays NaN and is not counted.
#pragma once

#include <vector>

namespace isentrope::analysis {

// Returns p-values adjusted by Holm (1979). If no effect exists, any is below 0.05 in at most 5 %
// of families, however the tests depend on each other.
[[nodiscard]] std::vector<double> holm(const std::vector<double>& p);

// Returns p-values adjusted by Benjamini and Hochberg (1995). On average at most 5 % of those below
// 0.05 are false. Tests must be independent or positively dependent.
[[nodiscard]] std::vector<double> benjamini_hochberg(const std::vector<double>& p);

}  // namespace isentrope::analysis
