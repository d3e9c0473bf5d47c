// TextInterval: how much of a lead is the text it was measured on. The blocks of the test text
// (lab/evaluate.h) are drawn again and again, the seeds stay.
#pragma once

#include <optional>
#include <vector>

namespace isentrope::analysis {

struct TextInterval {
  double low = 0, high = 0;
};

// The 95 % percentile interval, over 2000 draws of blocks, of the sum of `differences`, one for
// each block, over that of `predictions`. The same for the same numbers. None of fewer than 8
// blocks, or of other blocks than predictions.
[[nodiscard]] std::optional<TextInterval> text_interval(const std::vector<double>& differences,
                                                        const std::vector<double>& predictions);

}  // namespace isentrope::analysis
