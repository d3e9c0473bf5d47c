// ScaleTable: a rule, resolved for one call into one lambda per row.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "isentrope/attention.h"

namespace isentrope {

// What kernels multiply by. A rule may leave the range of float, and an infinite scale would make a
// score of 0 a NaN. Half the range, because kernels measure logits in log2, in which a scale
// is 1.44 times as large.
[[nodiscard]] inline double in_float_range(double scale) {
  constexpr double kMost = std::numeric_limits<float>::max() / 2;
  return std::clamp(scale, -kMost, kMost);
}

// The length of a row as rules have it: `visible` counts the keys that a boolean mask leaves of
// those that the structural masks let the row see.
[[nodiscard]] RowLength counted_length(const AttentionOptions& options, std::int64_t batch,
                                       std::int64_t head, std::int64_t query, std::int64_t queries,
                                       std::int64_t keys);

// The softmax scales of one head's queries. Kernels read these numbers, never rules.
struct HeadScale {
  const float* before_cap;  // lambda: multiplies q.k
  const float* after_cap;   // multiplies the capped value; all 1 without a soft-cap
  const float* on_bias;     // multiplies the bias

  // What callers are told of row `query`.
  [[nodiscard]] float lambda(std::int64_t query) const {
    return before_cap[query] * after_cap[query];
  }
};

// The scale of a row whose keys are all hidden may be any finite number.
class ScaleTable {
 public:
  // Looks at a row's length only where the rule reads it, and at a boolean mask only where the rule
  // counts keys.
  ScaleTable(const AttentionInput& input, const AttentionOptions& options,
             const ParallelFor& parallel_for);

  [[nodiscard]] HeadScale of(std::int64_t batch, std::int64_t head) const {
    const std::int64_t at = (batch % batches_ * heads_ + head % heads_) * queries_;
    return {before_cap_.data() + at, after_cap_.data() + at, on_bias_.data() + at};
  }

 private:
  void fill(const AttentionOptions& options, std::int64_t dim);
  void resolve(const AttentionOptions& options, std::int64_t dim, std::int64_t keys,
               std::int64_t row);

  std::int64_t batches_ = 1, heads_ = 1;  // 1 where all are alike
  std::int64_t queries_;
  bool reads_length_, counts_keys_;
  std::vector<float> before_cap_, after_cap_, on_bias_;
};

}  // namespace isentrope
