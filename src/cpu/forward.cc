// The forward pass of one task: a run of rows of one key head against the keys they see.
//
//   for each block of keys            packed once, in L2
//     for each strip of rows          a register tile's worth
//       score tile  = Q K^T           in L1
//       logits      = finish_logits   where there is a soft-cap, a bias or a boolean mask
//       weights     = softmax_row     and the row's state
//       accumulator = keep * accumulator + weights V

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>

#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/logit_terms-inl.h"
#include "src/cpu/pack-inl.h"
#include "src/cpu/softmax_tile-inl.h"
#include "src/cpu/strip_ranges.h"
#include "src/cpu/tile_product-inl.h"
#include "src/row_results.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// A strip's score tile, 12 x 256 floats, leaves room in a 32 KiB L1 for the panel that streams past it.
constexpr std::size_t kBlockKeys = 256;
using QueryLayout = LeftLayout<1, kStripRows>;
using WeightLayout = LeftLayout<kBlockKeys, 1>;
using Ranges = StripRanges<kStripRows>;

int moments_of(const RowStatistics& wanted) {
  return (wanted.entropy ? kEntropy : 0) | (wanted.variance ? kVariance : 0) |
         (wanted.collision ? kCollision : 0);
}

class ForwardTask {
 public:
  ForwardTask(const ForwardCall& call, std::int64_t index)
      : call_(call),
        index_(index),
        task_(task_of(call.plan, index)),
        group_(call.input.q.extents[1] / call.plan.kv_heads),
        queries_per_head_(task_.end - task_.begin),
        rows_(static_cast<std::size_t>(group_ * queries_per_head_)),
        dim_(static_cast<std::size_t>(call.input.q.extents[3])),
        value_dim_(static_cast<std::size_t>(call.input.v.extents[3])),
        value_columns_(round_up(value_dim_, panel_width())),
        softmax_row_(softmax_row_for(moments_of(call.output.statistics))),
        has_terms_(call.options.soft_cap > 0 || call.options.bias || call.options.admitted) {}

  void run() {
    const std::size_t padded_rows = round_up(rows_, kStripRows);
    Scratch scratch(Scratch::rounded(padded_rows * dim_) + Scratch::rounded(padded_rows * value_columns_) +
                    Scratch::rounded(kBlockKeys * dim_) + Scratch::rounded(kBlockKeys * value_columns_));
    queries_ = scratch.take(padded_rows * dim_);
    accumulator_ = scratch.take(padded_rows * value_columns_);
    key_panels_ = scratch.take(kBlockKeys * dim_);
    value_panels_ = scratch.take(kBlockKeys * value_columns_);
    states_.assign(rows_, RowState{});
    std::fill_n(accumulator_, padded_rows * value_columns_, 0.0f);
    const KeyRange seen = list_ranges();
    pack_queries();
    for (std::int64_t block = seen.begin; block < seen.end; block += kBlockKeys) {
      run_block(block, HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen.end - block));
    }
    write();
  }

 private:
  std::int64_t head_of(std::size_t row) const {
    return task_.kv_head * group_ + static_cast<std::int64_t>(row) / queries_per_head_;
  }
  std::int64_t query_of(std::size_t row) const {
    return task_.begin + static_cast<std::int64_t>(row) % queries_per_head_;
  }

  // What each row sees of this task's keys; returns the union.
  KeyRange list_ranges() {
    const std::int64_t queries = call_.input.q.extents[2], keys = call_.plan.keys;
    KeyRange seen;
    for (std::size_t row = 0; row < rows_; ++row) {
      // The heads of a group see the same.
      if (row >= static_cast<std::size_t>(queries_per_head_)) {
        ranges_.push_back(ranges_[row - static_cast<std::size_t>(queries_per_head_)]);
        continue;
      }
      const KeyRange range = row_view(call_.options.mask, task_.batch, query_of(row), queries, keys).keys;
      ranges_.push_back({HWY_MAX(range.begin, task_.first_key), HWY_MIN(range.end, task_.last_key)});
      if (ranges_.back().size() == 0) continue;
      if (seen.size() == 0) seen = ranges_.back();
      seen = {HWY_MIN(seen.begin, ranges_.back().begin), HWY_MAX(seen.end, ranges_.back().end)};
    }
    return seen;
  }

  void pack_queries() {
    RowList list(call_.input.q);
    std::vector<float> lambda;
    for (std::int64_t member = 0; member < group_; ++member) {
      const std::int64_t head = task_.kv_head * group_ + member;
      list.add(call_.input.q, task_.batch, head, task_.begin, task_.end);
      const float* scale = call_.scale.of(task_.batch, head).before_cap;
      lambda.insert(lambda.end(), scale + task_.begin, scale + task_.end);
    }
    pack_transposed(list, kStripRows, queries_, lambda.data());
  }

  void run_block(std::int64_t block, std::int64_t block_keys) {
    block_ = block;
    block_keys_ = static_cast<std::size_t>(block_keys);
    const AttentionInput& in = call_.input;
    RowList keys(in.k), values(in.v);
    keys.add_keys(in.k, in.pages, task_.batch, task_.kv_head, block, block + block_keys);
    values.add_keys(in.v, in.pages, task_.batch, task_.kv_head, block, block + block_keys);
    pack_transposed(keys, panel_width(), key_panels_);
    values_finite_ = pack_rows(values, value_panels_);
    for (std::size_t row = 0; row < rows_; row += kStripRows) {
      const std::size_t rows = HWY_MIN(kStripRows, rows_ - row);
      const Ranges ranges(rows, block, block_keys, [&](std::size_t r) { return ranges_[row + r]; });
      if (!ranges.empty()) run_strip(row, rows, ranges);
    }
  }

  void run_strip(std::size_t row, std::size_t rows, const Ranges& ranges) {
    HWY_ALIGN float tile[kStripRows * kBlockKeys];
    float keep[kStripRows] = {};
    const std::size_t width = panel_width();
    const std::size_t first = ranges.first / width * width, last = round_up(ranges.last, width);
    multiply<QueryLayout, Into::replace>({.rows = rows,
                                          .columns = last - first,
                                          .depth = dim_,
                                          .a = queries_ + row * dim_,
                                          .b = key_panels_ + first * dim_,
                                          .b_panel = width * dim_,
                                          .c = tile + first,
                                          .c_stride = kBlockKeys});
    for (std::size_t r = 0; r < rows; ++r) {
      float* logits = tile + r * kBlockKeys + first;
      const std::size_t begin = ranges.begin[r] - first, end = ranges.end[r] - first;
      auto support = static_cast<std::int64_t>(end - begin);
      if (has_terms_) support = finish_logits(terms_of(row + r, first), begin, end, last - first, logits);
      if (begin > 0 || end < last - first) hide_outside(logits, begin, end, last - first);
      keep[r] = softmax_row_(logits, last - first, support, states_[row + r]);
    }
    const TileProduct weighted_values{.rows = rows,
                                      .columns = value_columns_,
                                      .depth = ranges.last - ranges.first,
                                      .a = tile + ranges.first,
                                      .b = value_panels_ + ranges.first * width,
                                      .b_panel = block_keys_ * width,
                                      .c = accumulator_ + row * value_columns_,
                                      .c_stride = value_columns_,
                                      .keep = keep};
    if (values_finite_ || !(ranges.ragged || call_.options.admitted || call_.options.bias)) {
      multiply<WeightLayout, Into::scale>(weighted_values);
    } else {
      multiply_where<WeightLayout, Into::scale>(weighted_values, [&](std::size_t r, std::size_t j) {
        return ranges.admits(r, ranges.first + j) && !terms_of(row + r, ranges.first + j).hides(0);
      });
    }
  }

  LogitTerms terms_of(std::size_t row, std::size_t first) const {
    return logit_terms(call_.options, call_.scale.of(task_.batch, head_of(row)), task_.batch, head_of(row),
                       query_of(row), block_ + static_cast<std::int64_t>(first));
  }

  void write() const {
    for (std::size_t row = 0; row < rows_; ++row) {
      const float* sums = accumulator_ + row * value_columns_;
      if (call_.partials == nullptr) {
        write_results(call_, task_.batch, head_of(row), query_of(row), states_[row], sums);
        continue;
      }
      const std::size_t at = static_cast<std::size_t>(index_ * call_.partials->rows) + row;
      call_.partials->states[at] = states_[row];
      std::copy_n(sums, value_dim_, call_.partials->sums.data() + at * value_dim_);
    }
  }

  const ForwardCall& call_;
  const std::int64_t index_;
  const Task task_;
  const std::int64_t group_, queries_per_head_;
  const std::size_t rows_;  // of all heads of the group, one head after the other
  const std::size_t dim_, value_dim_, value_columns_;
  const SoftmaxRow softmax_row_;
  const bool has_terms_;
  std::vector<KeyRange> ranges_;   // one a row
  std::vector<RowState> states_;   // one a row
  float* queries_ = nullptr;       // strips of lambda q, transposed
  float* accumulator_ = nullptr;   // [row][value column]
  float* key_panels_ = nullptr;    // this block's keys, transposed
  float* value_panels_ = nullptr;  // this block's values
  std::int64_t block_ = 0;         // first key of this block
  std::size_t block_keys_ = 0;
  bool values_finite_ = true;  // of this block
};

void forward_task(const ForwardCall& call, std::int64_t index) { ForwardTask(call, index).run(); }

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(forward_task);

void run_forward_task(const ForwardCall& call, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(forward_task)(call, task);
}

}  // namespace isentrope
#endif  // HWY_ONCE
