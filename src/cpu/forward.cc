// The forward pass of one task: a run of rows of one key head against the keys they see.
//
//   for each block of keys            packed once, in L2
//     for each strip of rows          a register tile's worth
//       score tile  = Q K^T           in L1
//       logits      = finish_logits   where there is a soft-cap, a bias or a boolean mask
//       weights     = softmax_row     and the row's state
//       accumulator = keep * accumulator + weights V
//
// Where a strip holds all rows, as in a decode step, it reads keys and values as they lie.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "src/cpu/bf16_product.h"
#include "src/cpu/block_keys.h"
#include "src/cpu/few_rows-inl.h"
#include "src/cpu/kernels.h"
#include "src/cpu/logit_terms-inl.h"
#include "src/cpu/pack-inl.h"
#include "src/cpu/pack_bf16-inl.h"
#include "src/cpu/score_product-inl.h"
#include "src/cpu/softmax_tile-inl.h"
#include "src/cpu/store-inl.h"
#include "src/cpu/strip_ranges.h"
#include "src/cpu/strip_results-inl.h"
#include "src/cpu/tile_product-inl.h"
#include "src/row_results.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

using WeightLayout = LeftLayout<kBlockKeys, 1>;
using Ranges = StripRanges<kStripRows>;

int moments_of(const RowStatistics& wanted) {
  return (wanted.entropy ? kEntropy : 0) | (wanted.variance ? kVariance : 0) |
         (wanted.collision ? kCollision : 0);
}

class ForwardTask {
 public:
  explicit ForwardTask(const ForwardCall& call)
      : call_(call),
        group_(call.input.q.extents[1] / call.plan.kv_heads),
        dim_(static_cast<std::size_t>(call.input.q.extents[3])),
        value_dim_(static_cast<std::size_t>(call.input.v.extents[3])),
        columns_(round_up(dim_, panel_width())),
        value_columns_(round_up(value_dim_, panel_width())),
        padded_rows_(round_up(
            round_up(static_cast<std::size_t>(group_ * call.plan.run), kStripRows), kFewRows)),
        softmax_strip_(softmax_strip_for(moments_of(call.output.statistics))),
        has_units_(has_bf16_products() && is_in_units(call.input.q) && is_in_units(call.input.k)),
        has_value_units_(has_bf16_products() && is_in_units(call.input.v)),
        has_terms_(call.options.soft_cap > 0 || call.options.bias || call.options.admitted),
        scratch_(padded_rows_ * (2 * columns_ + value_columns_) +
                 kBlockKeys * (dim_ + value_columns_) + 5 * Scratch::rounded(1)),
        queries_(scratch_.take(padded_rows_ * columns_)),
        query_units_(scratch_.take(padded_rows_ * columns_)),
        accumulator_(scratch_.take(padded_rows_ * value_columns_)),
        key_panels_(scratch_.take(kBlockKeys * dim_)),
        value_panels_(scratch_.take(kBlockKeys * value_columns_)),
        states_(padded_rows_ / kStripRows),
        query_list_(call.input.q),
        key_list_(call.input.k),
        value_list_(call.input.v) {}

  void run(std::int64_t index) {
    index_ = index;
    part_ = part_of(call_.plan, index);
    queries_per_head_ = part_.end - part_.begin;
    rows_ = static_cast<std::size_t>(group_ * queries_per_head_);
    streams_ = rows_ <= kStripRows && is_streamable(key_list_) && is_streamable(value_list_) &&
               !call_.options.admitted && !call_.options.bias;
    for (StripState& state : states_) state.clear();
    list_ranges();
    pack_queries();
    for (std::int64_t block = seen_.begin; block < seen_.end; block += kBlockKeys) {
      run_block(block, HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen_.end - block));
    }
    for (std::size_t row = 0; row < rows_; row += kStripRows)
      write_strip(row, HWY_MIN(kStripRows, rows_ - row));
  }

 private:
  std::int64_t head_of(std::size_t row) const {
    return part_.kv_head * group_ + static_cast<std::int64_t>(row) / queries_per_head_;
  }
  std::int64_t query_of(std::size_t row) const {
    return part_.begin + static_cast<std::int64_t>(row) % queries_per_head_;
  }

  // What each row sees of this task's keys, and the union.
  void list_ranges() {
    const std::int64_t queries = call_.input.q.extents[2], keys = call_.plan.keys;
    ranges_.clear();
    seen_ = {};
    for (std::size_t row = 0; row < rows_; ++row) {
      // The heads of a group see the same.
      if (row >= static_cast<std::size_t>(queries_per_head_)) {
        ranges_.push_back(ranges_[row - static_cast<std::size_t>(queries_per_head_)]);
        continue;
      }
      const KeyRange range =
          row_view(call_.options.mask, part_.batch, query_of(row), queries, keys).keys;
      ranges_.push_back(
          {HWY_MAX(range.begin, part_.first_key), HWY_MIN(range.end, part_.last_key)});
      if (ranges_.back().size() == 0) continue;
      if (seen_.size() == 0) seen_ = ranges_.back();
      seen_ = {HWY_MIN(seen_.begin, ranges_.back().begin), HWY_MAX(seen_.end, ranges_.back().end)};
    }
  }

  void pack_queries() {
    query_list_.rows.clear();
    lambda_.clear();
    for (std::int64_t member = 0; member < group_; ++member) {
      const std::int64_t head = part_.kv_head * group_ + member;
      query_list_.add(call_.input.q, part_.batch, head, part_.begin, part_.end);
      const float* scale = call_.scale.of(part_.batch, head).before_cap;
      for (std::int64_t query = part_.begin; query < part_.end; ++query)
        lambda_.push_back(scale_in_bits(scale[query]));
    }
    query_list_.make_whole(whole_queries_);
    pack_rows(query_list_, padded_rows_, queries_, lambda_.data());
    lambda_.resize(padded_rows_);  // a strip's product reads whole steps of rows
    units_fit_queries_ = has_units_ && is_fit_for_units(query_list_);
    if (units_fit_queries_) pack_units(query_list_, padded_rows_, query_units_);
  }

  void run_block(std::int64_t block, std::int64_t block_keys) {
    block_ = block;
    block_keys_ = static_cast<std::size_t>(block_keys);
    if (streams_) {
      const Ranges ranges(rows_, block, block_keys, [&](std::size_t r) { return ranges_[r]; });
      if (!ranges.empty()) stream_block(ranges);
      return;
    }
    list_keys(block, block + block_keys);
    in_units_ = units_fit_queries_ && is_fit_for_units(key_list_);
    in_units_ ? pack_transposed_units(key_list_, key_panels_)
              : pack_transposed(key_list_, key_panels_);
    values_finite_ = has_value_units_ ? pack_row_pairs(value_list_, value_panels_)
                                      : pack_rows(value_list_, block_keys_, value_panels_);
    for (std::size_t row = 0; row < rows_; row += kStripRows) {
      const std::size_t rows = HWY_MIN(kStripRows, rows_ - row);
      const Ranges ranges(rows, block, block_keys, [&](std::size_t r) { return ranges_[row + r]; });
      if (!ranges.empty()) run_strip(row, rows, ranges);
    }
  }

  void list_keys(std::int64_t begin, std::int64_t end) {
    const AttentionInput& in = call_.input;
    key_list_.rows.clear();
    value_list_.rows.clear();
    key_list_.add_keys(in.k, in.pages, part_.batch, part_.kv_head, begin, end);
    value_list_.add_keys(in.v, in.pages, part_.batch, part_.kv_head, begin, end);
    key_list_.make_whole(whole_keys_);
    value_list_.make_whole(whole_values_);
  }

  // A block of keys for few rows: nothing is packed. Where rows see different keys each adds up the
  // values of its own, so that nothing hidden meets even a weight of 0.
  void stream_block(const Ranges& ranges) {
    HWY_ALIGN float tile[kStateRows * kBlockKeys];
    HWY_ALIGN float keep[kStateRows];
    list_keys(block_ + static_cast<std::int64_t>(ranges.first),
              block_ + static_cast<std::int64_t>(ranges.last));
    const std::size_t columns = round_up(key_list_.rows.size(), panel_width());
    score_keys(queries_, padded_rows_ * panel_width(), rows_, key_list_, tile, kBlockKeys);
    StripState& state = states_.front();
    const bool fresh = is_fresh(state, rows_);
    finish_rows(0, rows_, ranges.first, columns, ranges, tile);
    const bool moved = softmax_strip_(tile, kBlockKeys, rows_, columns, state, keep);
    for (std::size_t r = 0; r < rows_ && (fresh || moved); ++r) {
      float* sums = accumulator_ + r * value_columns_;
      for (std::size_t c = 0; c < value_columns_; ++c) sums[c] = fresh ? 0 : keep[r] * sums[c];
    }
    if (!ranges.ragged) {
      const std::size_t keys = ranges.last - ranges.first;
      return add_values(tile, kBlockKeys, rows_, value_list_, 0, keys, accumulator_,
                        value_columns_);
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      add_values(tile + r * kBlockKeys, kBlockKeys, 1, value_list_, ranges.begin[r] - ranges.first,
                 ranges.end[r] - ranges.first, accumulator_ + r * value_columns_, value_columns_);
    }
  }

  // Scores become logits, and those a row does not see -inf. tile[0] is of the block's key `first`.
  void finish_rows(std::size_t row, std::size_t rows, std::size_t first, std::size_t columns,
                   const Ranges& ranges, float* tile) {
    StripState& state = states_[row / kStripRows];
    for (std::size_t r = 0; r < rows; ++r) {
      float* logits = tile + r * kBlockKeys;
      const std::size_t begin = ranges.begin[r] - first, end = ranges.end[r] - first;
      auto support = static_cast<std::int64_t>(end - begin);
      if (has_terms_)
        support = finish_logits(terms_of(row + r, first), begin, end, columns, logits);
      if (begin > 0 || end < columns) hide_outside(logits, begin, end, columns);
      state.support[r] += support;
    }
  }

  void run_strip(std::size_t row, std::size_t rows, const Ranges& ranges) {
    HWY_ALIGN float tile[kStripRows * kBlockKeys];
    HWY_ALIGN float keep[kStateRows];
    const std::size_t width = panel_width();
    const std::size_t first = ranges.first / width * width, last = round_up(ranges.last, width);
    multiply_scores({.depth = dim_,
                     .in_units = in_units_,
                     .rows = in_units_ ? query_units_ : queries_,
                     .padded_rows = padded_rows_,
                     .factors = lambda_.data(),
                     .keys = key_panels_},
                    row, rows, first, last - first, tile + first, kBlockKeys);
    StripState& state = states_[row / kStripRows];
    const bool fresh = is_fresh(state, rows);
    finish_rows(row, rows, first, last - first, ranges, tile + first);
    softmax_strip_(tile + first, kBlockKeys, rows, last - first, state, keep);
    if (has_value_units_) {
      for (std::size_t r = 0; r < rows; ++r) {
        float* weights = tile + r * kBlockKeys + first;
        bf16::round_row(weights, last - first, tile + r * kBlockKeys + first / 2);
      }
      add_values_in_units(row, rows, ranges, tile, keep, fresh);
    } else {
      add_values_in_floats(row, rows, ranges, tile, keep, fresh);
    }
  }

  // Value sums of a strip, from its weights.
  void add_values_in_floats(std::size_t row, std::size_t rows, const Ranges& ranges,
                            const float* tile, const float* keep, bool fresh) {
    const std::size_t width = panel_width();
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
      return fresh ? multiply<WeightLayout, Into::replace>(weighted_values)
                   : multiply<WeightLayout, Into::scale>(weighted_values);
    }
    if (fresh) std::fill_n(weighted_values.c, round_up(rows, kRowStep) * value_columns_, 0.0f);
    multiply_where<WeightLayout, Into::scale>(weighted_values, [&](std::size_t r, std::size_t j) {
      return admits(row + r, ranges, r, ranges.first + j);
    });
  }

  // The same, weights and values in units of two keys.
  void add_values_in_units(std::size_t row, std::size_t rows, const Ranges& ranges,
                           const float* tile, const float* keep, bool fresh) {
    float* sums = accumulator_ + row * value_columns_;
    if (fresh) std::fill_n(sums, round_up(rows, kRowStep) * value_columns_, 0.0f);
    const std::size_t pair = ranges.first / 2;
    bf16::add_weighted({.rows = rows,
                        .columns = value_columns_,
                        .depth = (ranges.last + 1) / 2 - pair,
                        .a = tile + pair,
                        .b = value_panels_ + pair * bf16::kColumns,
                        .b_panel = (block_keys_ + 1) / 2 * bf16::kColumns,
                        .c = sums,
                        .c_stride = value_columns_,
                        .factors = keep});
    if (values_finite_) return;
    // Packing left out what is not finite, so that it meets no row that does not see it.
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* weights = reinterpret_cast<const BFloat16*>(tile + r * kBlockKeys);
      for (std::size_t j = ranges.begin[r]; j < ranges.end[r]; ++j) {
        if (!admits(row + r, ranges, r, j)) continue;
        for (std::size_t c = 0; c < value_dim_; ++c) {
          const float value = value_list_.at(j, static_cast<std::int64_t>(c));
          if (!std::isfinite(value)) sums[r * value_columns_ + c] += to_float(weights[j]) * value;
        }
      }
    }
  }

  // Whether row `row`, the r-th of its strip, sees key j of the block.
  bool admits(std::size_t row, const Ranges& ranges, std::size_t r, std::size_t j) const {
    return ranges.admits(r, j) && !terms_of(row, j).hides(0);
  }

  // Whether no row of the strip has seen a key: its value sums are then still undefined.
  static bool is_fresh(const StripState& state, std::size_t rows) {
    return std::all_of(state.support, state.support + rows,
                       [](std::int64_t support) { return support == 0; });
  }

  LogitTerms terms_of(std::size_t row, std::size_t first) const {
    return logit_terms(call_.options, call_.scale.of(part_.batch, head_of(row)), part_.batch,
                       head_of(row), query_of(row), block_ + static_cast<std::int64_t>(first));
  }

  void write_strip(std::size_t row, std::size_t rows) {
    const StripState& state = states_[row / kStripRows];
    float* sums = accumulator_ + row * value_columns_;
    if (is_fresh(state, rows)) std::fill_n(sums, rows * value_columns_, 0.0f);
    if (call_.partials != nullptr) {
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t at = static_cast<std::size_t>(index_ * call_.partials->rows) + row + r;
        call_.partials->states[at] = state.row(r);
        std::copy_n(sums + r * value_columns_, value_dim_,
                    call_.partials->sums.data() + at * value_dim_);
      }
      return;
    }
    StripStats stats;
    finalize_strip(state, rows, stats);
    // The strip's rows of one head after the other.
    for (std::size_t r = 0; r < rows;) {
      const std::int64_t head = head_of(row + r), query = query_of(row + r);
      const std::size_t count = HWY_MIN(rows - r, static_cast<std::size_t>(part_.end - query));
      write_statistics(call_, state, stats, {part_.batch, head, query}, r, count);
      for (std::int64_t at = query; at < query + static_cast<std::int64_t>(count); ++at, ++r) {
        const float factor = stats.factor[r] * beside_sink(head, state.support[r], stats.lse[r]);
        store_row(call_.output.output, part_.batch, head, at, factor, sums + r * value_columns_);
      }
    }
  }

  // The weight that the sink leaves the real keys.
  float beside_sink(std::int64_t head, std::int64_t support, float lse) const {
    if (!call_.options.sink || support == 0) return 1;
    return static_cast<float>(weight_beside_sink(lse, call_.options.sink(head)));
  }

  const ForwardCall& call_;
  const std::int64_t group_;
  const std::size_t dim_, value_dim_, columns_, value_columns_, padded_rows_;
  const SoftmaxStrip softmax_strip_;
  const bool has_units_;        // bf16 queries and keys that the dot products can read
  const bool has_value_units_;  // values, likewise
  const bool has_terms_;
  Scratch scratch_;
  float* queries_;                  // lambda q in bits, in panels of columns
  float* query_units_;              // q as it is, in units of two bf16 numbers
  float* accumulator_;              // [row][value column]
  float* key_panels_;               // this block's keys, transposed
  float* value_panels_;             // this block's values
  std::vector<StripState> states_;  // one a strip
  std::vector<KeyRange> ranges_;    // one a row
  std::vector<float> lambda_;       // one a row, in bits
  RowList query_list_, key_list_, value_list_;
  std::vector<std::byte> whole_queries_, whole_keys_, whole_values_;  // of rows with columns apart
  // Of the part of the plan at hand:
  std::int64_t index_ = 0;
  Part part_{};
  std::int64_t queries_per_head_ = 0;
  std::size_t rows_ = 0;    // of all heads of the group, one head after the other
  bool streams_ = false;    // keys and values are read as they lie
  KeyRange seen_;           // by any row
  std::int64_t block_ = 0;  // first key of this block
  std::size_t block_keys_ = 0;
  bool units_fit_queries_ = false;
  bool in_units_ = false;      // this block's keys
  bool values_finite_ = true;  // of this block
};

void forward_task(const ForwardCall& call, std::int64_t begin, std::int64_t end) {
  ForwardTask task(call);
  for (std::int64_t index = begin; index < end; ++index) task.run(index);
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(forward_task);

void run_forward(const ForwardCall& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_task)(call, begin, end);
}

}  // namespace isentrope
#endif  // HWY_ONCE
