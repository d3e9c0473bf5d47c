// Paired: mean of paired differences, with Student's t.
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
  double sd = kNotANumber, se = kNotANumber;     // of differences, of their mean
  double low = kNotANumber, high = kNotANumber;  // 95 % interval of the mean
  double p = kNotANumber;                        // two-sided, for no difference
  std::string_view undecided = {};               // why there is no p; empty if there is one

  [[nodiscard]] std::int64_t df() const { return pairs - 1; }
};

// Fewer than 3 differences, and differences that are all equal, have no interval and no p. One
// degree of freedom is uninformative, and a deviation of 0 is the resolution of the measure.
[[nodiscard]] Paired paired(const std::vector<double>& differences);

}  // namespace isentrope::analysis
