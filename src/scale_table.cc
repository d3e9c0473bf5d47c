#include "src/scale_table.h"

#include <string>

#include "isentrope/error.h"

namespace isentrope {

ScaleTable::ScaleTable(const ScaleRule& rule, const Mask& mask, std::int64_t heads, std::int64_t queries,
                       std::int64_t keys, std::int64_t dim)
    : heads_(rule.heads()), queries_(queries) {
  if (heads_ != 1 && heads_ != heads) {
    throw Error("[scale_table] a rule with a number per head must have as many as the call has heads, " +
                std::to_string(heads) + "; got " + std::to_string(heads_));
  }
  lambda_.reserve(static_cast<std::size_t>(heads_ * queries));
  for (std::int64_t head = 0; head < heads_; ++head) {
    for (std::int64_t query = 0; query < queries; ++query) {
      const RowLength length = row_length(mask, query, queries, keys);
      lambda_.push_back(static_cast<float>(rule.lambda(length, dim, head)));
    }
  }
}

}  // namespace isentrope
