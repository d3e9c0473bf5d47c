// ScaleTable: the lambdas of all rows of a call, resolved from its rule.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "isentrope/attention.h"
#include "src/call/mask_summary.h"

namespace isentrope {

// Clamps a scale to half the float range. An infinite scale would turn a score of 0 into NaN, and
// kernels multiply it by 1.44 for logits in log2.
[[nodiscard]] inline double in_float_range(double scale) {
  constexpr double kMost = std::numeric_limits<float>::max() / 2;
  return std::clamp(scale, -kMost, kMost);
}

// Returns a row's length for rules. `visible` counts keys that structural and boolean masks leave,
// and with bias_hides those whose bias is not -inf. A summary of the masks saves reading them.
[[nodiscard]] RowLength counted_length(const AttentionOptions& options, std::int64_t batch,
                                       std::int64_t head, std::int64_t query, std::int64_t queries,
                                       std::int64_t keys, const MaskSummary* masks = nullptr);

// Softmax scales of one head's queries. Kernels read these numbers, never rules.
struct HeadScale {
  const float* before_cap;  // lambda: multiplies q.k
  const float* after_cap;   // multiplies the capped value; all 1 without a soft-cap
  const float* on_bias;     // multiplies the bias

  // Returns the lambda reported for row `query`.
  [[nodiscard]] float lambda(std::int64_t query) const {
    return before_cap[query] * after_cap[query];
  }
};

// Scales of all rows. A row whose keys are all hidden may have any finite scale.
class ScaleTable {
 public:
  // Computes a row's length only if the rule reads it, and counts a mask's keys only if the rule
  // counts visible keys.
  ScaleTable(const AttentionInput& input, const AttentionOptions& options,
             const ParallelFor& parallel_for, const MaskSummary* masks = nullptr);

  [[nodiscard]] HeadScale of(std::int64_t batch, std::int64_t head) const {
    const std::int64_t at = (batch % batches_ * heads_ + head % heads_) * queries_;
    return {before_cap_.data() + at, after_cap_.data() + at, on_bias_.data() + at};
  }

 private:
  void fill(const AttentionOptions& options, std::int64_t dim);
  void resolve(const AttentionOptions& options, std::int64_t dim, std::int64_t keys,
               std::int64_t row, const MaskSummary* masks = nullptr);

  std::int64_t batches_ = 1, heads_ = 1;  // 1 if all share the same scales
  std::int64_t queries_;
  bool reads_length_, counts_keys_;
  std::vector<float> before_cap_, after_cap_, on_bias_;
};

}  // namespace isentrope
