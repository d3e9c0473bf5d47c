// Paired: what differences of pairs say of their mean, by Student's t.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace isentrope::analysis {

inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Paired {
  std::int64_t pairs = 0;
  double mean = kNotANumber;
  double sd = kNotANumber, se = kNotANumber;     // of the differences, of their mean; from 2 pairs
  double low = kNotANumber, high = kNotANumber;  // 95 % interval of the mean
  double p = kNotANumber;                        // of no difference, two-sided
  std::string_view undecided = {};               // why there is no p; empty where there is one

  [[nodiscard]] std::int64_t df() const { return pairs - 1; }
};

// Fewer than 3 differences, and differences that are all equal, have no interval and no p: with one
// degree of freedom the interval says nothing, and a deviation of 0 is the measure's grain.
[[nodiscard]] Paired paired(const std::vector<double>& differences);

}  // namespace isentrope::analysis
