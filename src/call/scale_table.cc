#include "src/call/scale_table.h"

namespace isentrope {
namespace {

// Work of one task: this many mask lookups, or a sixteenth as many logarithms.
constexpr std::int64_t kTask = 1 << 16;

// Returns whether the key is hidden by a mask that rules count.
bool is_hidden(const AttentionOptions& options, std::int64_t batch, std::int64_t head,
               std::int64_t query, std::int64_t key) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  return (options.attn_mask && options.attn_mask(batch, head, query, key) == 0) ||
         (options.bias_hides && options.bias(batch, head, query, key) == kHidden);
}

// Returns whether masks that rules count differ along an axis.
bool differ_along(const AttentionOptions& options, std::size_t axis) {
  return (options.attn_mask && options.attn_mask.strides[axis] != 0) ||
         (options.bias_hides && options.bias.strides[axis] != 0);
}

}  // namespace

RowLength counted_length(const AttentionOptions& options, std::int64_t batch, std::int64_t head,
                         std::int64_t query, std::int64_t queries, std::int64_t keys,
                         const MaskSummary* masks) {
  RowView row = row_view(options.mask, batch, query, queries, keys);
  if (!options.attn_mask && !options.bias_hides) return row.length;
  // A bias that hides keys from the row but not from n is part of the summary.
  if (masks && (!options.bias || options.bias_hides)) {
    const std::int64_t count = masks->count(masks->row(batch, head, query), row.keys);
    if (count >= 0) {
      row.length.visible = count;
      return row.length;
    }
  }
  row.length.visible = 0;
  for (std::int64_t j = row.keys.begin; j < row.keys.end; j += row.keys.stride)
    row.length.visible += !is_hidden(options, batch, head, query, j);
  return row.length;
}

ScaleTable::ScaleTable(const AttentionInput& in, const AttentionOptions& options,
                       const ParallelFor& parallel_for, const MaskSummary* masks)
    : queries_(in.q.extents[2]) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const ScaleRule& rule = options.rule;
  counts_keys_ = !options.lambda && (options.attn_mask || options.bias_hides) &&
                 rule.reads(LengthSource::visible);
  reads_length_ =
      !options.lambda && (rule.reads(LengthSource::visible) || rule.reads(LengthSource::position) ||
                          rule.reads(LengthSource::total));
  if (options.lambda || (reads_length_ && !batches_are_alike(options.mask)) ||
      (counts_keys_ && differ_along(options, 0))) {
    batches_ = batches;
  }
  if (options.lambda || options.bias_slopes || rule.heads() > 1 ||
      (counts_keys_ && differ_along(options, 1))) {
    heads_ = heads;
  }
  const std::int64_t rows = batches_ * heads_ * queries;
  if (rows == 0) return;
  for (auto* values : {&before_cap_, &after_cap_, &on_bias_})
    values->resize(static_cast<std::size_t>(rows));
  if (!options.lambda && !reads_length_) {
    fill(options, dim);
    return;
  }
  const std::int64_t keys = in.keys();
  const std::int64_t of_task =
      std::max<std::int64_t>(1, kTask / (counts_keys_ ? std::max<std::int64_t>(keys, 1) : 16));
  parallel_for((rows + of_task - 1) / of_task, [&](std::int64_t task) {
    const std::int64_t end = std::min(rows, (task + 1) * of_task);
    for (std::int64_t row = task * of_task; row < end; ++row)
      resolve(options, dim, keys, row, masks);
  });
}

// A rule that reads no length has one scale for all rows of a head.
void ScaleTable::fill(const AttentionOptions& options, std::int64_t dim) {
  for (std::int64_t head = 0; head < heads_; ++head) {
    resolve(options, dim, 0, head * queries_);
    for (auto* values : {&before_cap_, &after_cap_, &on_bias_}) {
      const auto first = values->begin() + head * queries_;
      std::fill_n(first, queries_, *first);
    }
  }
}

void ScaleTable::resolve(const AttentionOptions& options, std::int64_t dim, std::int64_t keys,
                         std::int64_t row, const MaskSummary* masks) {
  const std::int64_t query = row % queries_, head = row / queries_ % heads_,
                     batch = row / queries_ / heads_;
  const auto at = static_cast<std::size_t>(row);
  const double slope = options.bias_slopes ? options.bias_slopes(head) : 1;
  if (options.lambda) {
    before_cap_[at] = options.lambda(batch, head, query);
    after_cap_[at] = 1;
    on_bias_[at] = static_cast<float>(slope);
    return;
  }
  RowLength length{.visible = 1, .position = 0, .total = 1};
  if (counts_keys_) {
    length = counted_length(options, batch, head, query, queries_, keys, masks);
  } else if (reads_length_) {
    length = row_view(options.mask, batch, query, queries_, keys).length;
  }
  const double before = options.rule.pre_cap(length, dim, head);
  const double after = options.rule.post_cap(length, dim, head);
  const bool capped = options.soft_cap > 0;
  before_cap_[at] = static_cast<float>(in_float_range(capped ? before : before * after));
  after_cap_[at] = static_cast<float>(in_float_range(capped ? after : 1));
  on_bias_[at] =
      static_cast<float>(in_float_range(slope * options.rule.on_bias(length, dim, head)));
}

}  // namespace isentrope
