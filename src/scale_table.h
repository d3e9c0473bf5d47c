// ScaleTable: a rule, resolved for one call into one lambda per row and head.
#pragma once

#include <span>
#include <vector>

#include "isentrope/mask.h"
#include "isentrope/scale_rule.h"

namespace isentrope {

// Kernels read these numbers, never rules.
class ScaleTable {
 public:
  ScaleTable(const ScaleRule& rule, const Mask& mask, std::int64_t heads, std::int64_t queries,
             std::int64_t keys, std::int64_t dim);

  // The softmax scales of a head's queries. Head counts within one batch.
  [[nodiscard]] const float* of_head(std::int64_t head) const {
    return lambda_.data() + head % heads_ * queries_;
  }

 private:
  std::int64_t heads_;  // 1 where the rule treats all alike
  std::int64_t queries_;
  std::vector<float> lambda_;
};

}  // namespace isentrope
