// ScaleTable: a rule, resolved for one call into one lambda per row.
#pragma once

#include <vector>

#include "isentrope/mask.h"
#include "isentrope/scale_rule.h"

namespace isentrope {

// One softmax scale per query. Kernels read these numbers, never rules.
using ScaleTable = std::vector<float>;

[[nodiscard]] inline ScaleTable resolve_scale(const ScaleRule& rule, const Mask& mask,
                                              std::int64_t queries, std::int64_t keys,
                                              std::int64_t dim) {
  ScaleTable table;
  table.reserve(static_cast<std::size_t>(queries));
  for (std::int64_t query = 0; query < queries; ++query) {
    const double lambda = rule.lambda(row_length(mask, query, queries, keys), dim);
    table.push_back(static_cast<float>(lambda));
  }
  return table;
}

}  // namespace isentrope
