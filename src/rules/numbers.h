// Tables of a rule's factors, for kernels that look them up on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope {

// Factors [3, heads, count] for lengths first, first + 1, ...: before the soft-cap, after it, and
// on the bias.
struct RuleNumbers {
  std::int64_t heads = 0, count = 0;
  std::vector<double> factors;
};

// Tabulates the terms that read `source`; the factors of all sources multiply. Without a soft-cap
// the first factor is the product of both, not clamped. If no term reads `source`, the tables are
// empty for position and total, and have two entries for visible: rows without keys and with keys.
[[nodiscard]] RuleNumbers rule_numbers(const ScaleRule& rule, LengthSource source, std::int64_t dim,
                                       std::int64_t first, std::int64_t count, bool capped);

}  // namespace isentrope
