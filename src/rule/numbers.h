// A rule in numbers, for kernels that look it up on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope {

// factors [3, heads, count], of lengths first, first + 1, ...: the factor before the soft-cap,
// after it, and on the bias.
struct RuleNumbers {
  std::int64_t heads = 0, count = 0;
  std::vector<double> factors;
};

// Not capped: without a soft-cap the first is the product of what stands before it and after. Of
// the rule's terms only those that read `source`: the numbers of all sources multiply. Without such
// terms there are no numbers for position and total, and of visible the first two, for rows without
// keys and with some.
[[nodiscard]] RuleNumbers rule_numbers(const ScaleRule& rule, LengthSource source, std::int64_t dim,
                                       std::int64_t first, std::int64_t count, bool capped);

}  // namespace isentrope
