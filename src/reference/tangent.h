// Tangents of one reference row.
#pragma once

#include <vector>

#include "isentrope/reference.h"
#include "src/reference/rows.h"
#include "src/reference/statistics.h"

namespace isentrope::reference {

struct RowTangent {
  std::vector<Sum> scores;   // of q.k, for each seen key
  std::vector<Sum> scaled;   // of lambda q.k
  std::vector<Sum> centred;  // of the logit, less lse's tangent: of ln p_j
  Sum lse;
  Sum non_sink;  // of ln w, w the non-sink weight
  double before_cap = 0;
  StatisticFields<Sum> statistics;
};

[[nodiscard]] RowTangent tangent_of(const Input& input, const Input& tangent, const Row& row);

}  // namespace isentrope::reference
