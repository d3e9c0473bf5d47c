// Family: p-values that are judged together, each adjusted for there being others. What has none, a
// NaN, has none afterwards and is not counted.
#pragma once

#include <vector>

namespace isentrope::analysis {

// Below 0.05 it is rare, 5 % of families at most, that any is where nothing is there (Holm 1979).
// Whatever the tests have to do with each other.
[[nodiscard]] std::vector<double> holm(const std::vector<double>& p);

// Of those below 0.05, 5 % on average are where nothing is there (Benjamini and Hochberg 1995).
// Independent tests, or such as rise together.
[[nodiscard]] std::vector<double> benjamini_hochberg(const std::vector<double>& p);

}  // namespace isentrope::analysis
