#include "src/call/scale_table.h"

namespace isentrope {
namespace {

// Keys of the row that a boolean mask admits.
std::int64_t count_admitted(const View<const std::uint8_t, 4>& admitted, std::int64_t batch,
                            std::int64_t head, std::int64_t query, KeyRange keys) {
  std::int64_t count = 0;
  for (std::int64_t j = keys.begin; j < keys.end; ++j)
    count += admitted(batch, head, query, j) != 0;
  return count;
}

}  // namespace

ScaleTable::ScaleTable(const AttentionInput& in, const AttentionOptions& options)
    : queries_(in.q.extents[2]) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t keys = in.pages ? in.pages.keys : in.k.extents[2];
  const auto& admitted = options.attn_mask;
  const bool by_batch = options.lambda || options.mask.key_begin || options.mask.key_end ||
                        (admitted && admitted.strides[0] != 0);
  const bool by_head =
      options.lambda || options.rule.heads() > 1 || (admitted && admitted.strides[1] != 0);
  if (by_batch) batches_ = batches;
  if (by_head) heads_ = heads;
  for (auto* values : {&before_cap_, &after_cap_, &on_bias_}) {
    values->reserve(static_cast<std::size_t>(batches_ * heads_ * queries));
  }
  for (std::int64_t batch = 0; batch < batches_; ++batch) {
    for (std::int64_t head = 0; head < heads_; ++head) {
      for (std::int64_t query = 0; query < queries; ++query) {
        if (options.lambda) {
          before_cap_.push_back(options.lambda(batch, head, query));
          after_cap_.push_back(1);
          on_bias_.push_back(1);
          continue;
        }
        RowView row = row_view(options.mask, batch, query, queries, keys);
        if (admitted) row.length.visible = count_admitted(admitted, batch, head, query, row.keys);
        const double before = options.rule.pre_cap(row.length, dim, head);
        const double after = options.rule.post_cap(row.length, dim, head);
        const bool capped = options.soft_cap > 0;
        before_cap_.push_back(static_cast<float>(in_float_range(capped ? before : before * after)));
        after_cap_.push_back(static_cast<float>(in_float_range(capped ? after : 1)));
        on_bias_.push_back(
            static_cast<float>(in_float_range(options.rule.on_bias(row.length, dim, head))));
      }
    }
  }
}

}  // namespace isentrope
