// Each row's key with the largest logit, for the gradient of max_probability. The backward pass
// finds it when asked, because recording it in the forward pass would slow every call.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isentrope/attention.h"
#include "src/cpu/plan.h"

namespace isentrope {

struct LargestKey {
  float logit = -std::numeric_limits<float>::infinity();  // in log2
  std::int64_t key = -1;                                  // none
};

class LargestKeys {
 public:
  LargestKeys(const TilePlan& plan, const AttentionInput& input, const Mask& mask)
      : heads_(input.q.extents[1]),
        queries_(input.q.extents[2]),
        blocks_(static_cast<std::size_t>(plan.blocks)),
        is_part_(mask.sequence_keys > 0),
        of_blocks_(static_cast<std::size_t>(input.q.extents[0] * heads_ * queries_) * blocks_) {}

  [[nodiscard]] LargestKey& of_block(std::int64_t batch, std::int64_t head, std::int64_t query,
                                     std::int64_t block) {
    return of_blocks_[first_of(batch, head, query) + static_cast<std::size_t>(block)];
  }

  // Returns the first of the row's largest keys; -1 if there is none. In part of a longer sequence
  // it is also -1 unless a logit reaches `max_logit`, the row's largest. That was rounded
  // differently, so logits within a thousandth count as equal.
  [[nodiscard]] std::int64_t of_row(std::int64_t batch, std::int64_t head, std::int64_t query,
                                    float max_logit) const {
    LargestKey largest;
    for (std::size_t block = 0; block < blocks_; ++block) {
      const LargestKey& other = of_blocks_[first_of(batch, head, query) + block];
      if (other.logit > largest.logit) largest = other;
    }
    constexpr float kLn2 = 0.693147181f, kNear = 1e-3f;
    const float missing = max_logit - kLn2 * largest.logit;
    const bool is_elsewhere = is_part_ && missing > kNear * (1 + std::abs(max_logit));
    return is_elsewhere ? -1 : largest.key;
  }

 private:
  [[nodiscard]] std::size_t first_of(std::int64_t batch, std::int64_t head,
                                     std::int64_t query) const {
    return static_cast<std::size_t>((batch * heads_ + head) * queries_ + query) * blocks_;
  }

  std::int64_t heads_, queries_;
  std::size_t blocks_;
  bool is_part_;
  std::vector<LargestKey> of_blocks_;  // [batch][head][query][block]
};

}  // namespace isentrope
