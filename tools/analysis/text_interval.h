// Uncertainty of a lead due to the test text: blocks (tools/lab/evaluate.h) are drawn, seeds fixed.
#pragma once

#include <optional>
#include <vector>

namespace isentrope::analysis {

struct TextInterval {
  double low = 0, high = 0;
};

// Returns the 95 % percentile interval, over 2000 resamplings of blocks, of sum(differences) /
// sum(predictions), with one entry for each block. Deterministic. Empty for fewer than 8 blocks, or
// for vectors of different sizes.
[[nodiscard]] std::optional<TextInterval> text_interval(const std::vector<double>& differences,
                                                        const std::vector<double>& predictions);

}  // namespace isentrope::analysis
