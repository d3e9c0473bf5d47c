// Statistics of paired differences: their mean with Student's t, the p-values of a family, and the
// uncertainty that is due to the test text.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace isentrope::analysis {

inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Returns the mean; needs a value.
[[nodiscard]] double mean(const std::vector<double>& x);
// Returns the sample standard deviation; needs two values.
[[nodiscard]] double spread(const std::vector<double>& x);

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

// P-values of a family are judged together, each adjusted for their number. NaN means no p-value:
// it stays NaN and is not counted.

// Returns p-values adjusted by Holm (1979). If no effect exists, any is below 0.05 in at most 5 %
// of families, however the tests depend on each other.
[[nodiscard]] std::vector<double> holm(const std::vector<double>& p);

// Returns p-values adjusted by Benjamini and Hochberg (1995). On average at most 5 % of those below
// 0.05 are false. Tests must be independent or positively dependent.
[[nodiscard]] std::vector<double> benjamini_hochberg(const std::vector<double>& p);

// Uncertainty of a lead due to the test text: blocks (tools/lab/evaluate.h) are drawn, seeds fixed.
struct TextInterval {
  double low = 0, high = 0;
};

// Returns the 95 % percentile interval, over 2000 resamplings of blocks, of sum(differences) /
// sum(predictions), with one entry for each block. Deterministic. Empty for fewer than 8 blocks, or
// for vectors of different sizes.
[[nodiscard]] std::optional<TextInterval> text_interval(const std::vector<double>& differences,
                                                        const std::vector<double>& predictions);

}  // namespace isentrope::analysis
