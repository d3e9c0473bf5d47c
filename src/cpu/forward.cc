// The forward pass of one task: a query block of one key head against the keys they see.
//
//   for each block of keys            read as they lie, or copied once
//     for each row tile of rows          a panel's width, transposed: a lane of the vectors each
//       score tile  = K Q^T
//       logits      = finish_logits   where there is a soft-cap, a bias or a boolean mask
//       weights     = softmax         and the rows' states
//       accumulator = rescale * accumulator + V^T weights
//
// The few rows of a decode step would leave most lanes empty: their vectors run along keys and
// columns instead, which are read as they lie.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <optional>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/bf16_pairs.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/product/pack_pairs-inl.h"
#include "src/cpu/product/row_stream-inl.h"
#include "src/cpu/product/transpose-inl.h"
#include "src/cpu/row_ranges.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/decode_tile-inl.h"
#include "src/cpu/steps/logits-inl.h"
#include "src/cpu/steps/pv_tile-inl.h"
#include "src/cpu/steps/softmax_tile-inl.h"
#include "src/cpu/steps/tile_ranges.h"
#include "src/cpu/steps/tile_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

using Ranges = TileRanges<kStateRows>;

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
        padded_rows_(round_up(static_cast<std::size_t>(group_ * call.plan.block_rows), kStateRows)),
        softmax_(softmax_for(moments_of(call.output.statistics))),
        has_pairs_(has_bf16_products() && has_whole_pairs(call.input.q) &&
                   has_whole_pairs(call.input.k)),
        has_value_pairs_(has_bf16_products() && has_whole_pairs(call.input.v)),
        has_terms_(call.options.soft_cap > 0 || call.options.bias || call.options.admitted),
        scratch_(padded_rows_ * (2 * columns_ + value_columns_) +
                 kBlockKeys * (columns_ + value_columns_) + kStateRows * value_columns_ +
                 6 * Scratch::rounded(1)),
        queries_(scratch_.take(padded_rows_ * columns_)),
        query_pairs_(scratch_.take(padded_rows_ * columns_)),
        accumulator_(scratch_.take(padded_rows_ * value_columns_)),
        key_memory_(scratch_.take(kBlockKeys * columns_)),
        value_memory_(scratch_.take(kBlockKeys * value_columns_)),
        row_sums_(scratch_.take(kStateRows * value_columns_)),
        states_(padded_rows_ / panel_width()),
        query_list_(call.input.q),
        next_query_list_(call.input.q),
        key_list_(call.input.k),
        value_list_(call.input.v) {}

  // more: the next work item is run after this one.
  void run(std::int64_t index, bool more) {
    index_ = index;
    more_ = more;
    item_ = item_of(call_.plan, index);
    rows_ = static_cast<std::size_t>(group_ * (item_.end - item_.begin));
    streams_ = rows_ <= kRegisterRows && is_streamable(key_list_) && is_streamable(value_list_) &&
               !call_.options.admitted && !call_.options.bias;
    for (RowTileState& state : states_) state.clear();
    seen_ = list_row_ranges(call_.options.mask, item_, group_, call_.input.q.extents[2],
                            call_.plan.keys, ranges_);
    list_queries();
    for (std::int64_t block = seen_.begin; block < seen_.end; block += kBlockKeys) {
      run_block(block, HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen_.end - block));
    }
    if (streams_) return write_streamed();
    for (std::size_t row = 0; row < rows_; row += panel_width()) write_row_tile(row);
  }

 private:
  void list_queries_of(const WorkItem& item, RowList& list) const {
    list.rows.clear();
    for (std::int64_t member = 0; member < group_; ++member) {
      list.add(call_.input.q, item.batch, item.kv_head * group_ + member, item.begin, item.end);
    }
  }

  void list_queries() {
    list_queries_of(item_, query_list_);
    lambda_.clear();
    for (std::int64_t member = 0; member < group_; ++member) {
      const float* scale = call_.scale.of(item_.batch, item_.kv_head * group_ + member).before_cap;
      for (std::int64_t query = item_.begin; query < item_.end; ++query)
        lambda_.push_back(scale_log2(scale[query]));
    }
    query_list_.copy_if_strided(queries_copy_);
    queries_packed_ = false;
    if (streams_) {
      scale_rows(query_list_, lambda_.data(), columns_, queries_);
      return;
    }
    lambda_.resize(padded_rows_);  // for the lanes beyond the last row
    pairs_fit_queries_ = has_pairs_ && fits_bf16_pairs(query_list_);
    if (!pairs_fit_queries_) return;
    pack_transposed_pairs(query_list_, query_pairs_);
    fetch_next_queries();
  }

  // For the blocks of keys that are not in pairs.
  void pack_queries() {
    if (queries_packed_) return;
    pack_transposed(query_list_, queries_, lambda_.data());
    queries_packed_ = true;
    if (!pairs_fit_queries_) fetch_next_queries();
  }

  // A small work item's queries travel while the one before it is worked on: 1.03 times at n = 64.
  // Its keys and values, too, are too much at once: 0.97.
  void fetch_next_queries() {
    if (!more_ || rows_ > 128) return;
    list_queries_of(item_of(call_.plan, index_ + 1), next_query_list_);
    for (std::size_t row = 0; row < next_query_list_.rows.size(); ++row)
      prefetch_row(next_query_list_, row);
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
    in_pairs_ = pairs_fit_queries_ && fits_bf16_pairs(key_list_);
    const auto place_keys = [&](const RowList& keys) {
      return readable_rows(keys, columns_, key_memory_);
    };
    if (!in_pairs_) pack_queries();
    keys_ = in_pairs_ ? as_pairs(key_list_, place_keys) : place_keys(key_list_);
    values_finite_.reset();
    if (has_value_pairs_) {
      values_finite_ = pack_row_pairs(value_list_, value_memory_);
    } else {
      values_ = readable_rows(value_list_, value_columns_, value_memory_);
    }
    for (std::size_t row = 0; row < rows_; row += panel_width()) {
      const std::size_t rows = HWY_MIN(panel_width(), rows_ - row);
      const Ranges ranges(rows, block, block_keys, [&](std::size_t r) { return ranges_[row + r]; });
      if (!ranges.empty()) run_row_tile(row, rows, ranges);
    }
  }

  void list_keys(std::int64_t begin, std::int64_t end) {
    const AttentionInput& in = call_.input;
    key_list_.rows.clear();
    value_list_.rows.clear();
    key_list_.add_keys(in.k, in.pages, item_.batch, item_.kv_head, begin, end);
    value_list_.add_keys(in.v, in.pages, item_.batch, item_.kv_head, begin, end);
    key_list_.copy_if_strided(keys_copy_);
    value_list_.copy_if_strided(values_copy_);
  }

  // A block of keys for few rows: nothing is transposed. Where rows see different keys each adds up
  // the values of its own, so that nothing masked meets even a weight of 0.
  void stream_block(const Ranges& ranges) {
    HWY_ALIGN float tile[kStateRows * kBlockKeys];
    HWY_ALIGN float rescale[kStateRows];
    list_keys(block_ + static_cast<std::int64_t>(ranges.first),
              block_ + static_cast<std::int64_t>(ranges.last));
    const std::size_t columns = round_up(key_list_.rows.size(), panel_width());
    score_keys(queries_, columns_, rows_, key_list_, key_memory_, tile, kBlockKeys);
    RowTileState& state = states_.front();
    const bool empty = state.is_empty(rows_);
    for (std::size_t r = 0; r < rows_; ++r) {
      float* logits = tile + r * kBlockKeys;
      const std::size_t begin = ranges.begin[r] - ranges.first, end = ranges.end[r] - ranges.first;
      state.support[r] += finish_row(r, ranges.first, begin, end, columns, logits);
      if (begin > 0 || end < columns) mask_outside(logits, begin, end, columns);
    }
    const bool moved = softmax_.of_rows(tile, kBlockKeys, rows_, columns, state, rescale);
    for (std::size_t r = 0; r < rows_ && (empty || moved); ++r) {
      float* sums = accumulator_ + r * value_columns_;
      for (std::size_t c = 0; c < value_columns_; ++c) sums[c] = empty ? 0 : rescale[r] * sums[c];
    }
    if (!ranges.ragged) {
      const std::size_t keys = ranges.last - ranges.first;
      return add_values(tile, kBlockKeys, rows_, value_list_, 0, keys, value_memory_, accumulator_,
                        value_columns_);
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      add_values(tile + r * kBlockKeys, kBlockKeys, 1, value_list_, ranges.begin[r] - ranges.first,
                 ranges.end[r] - ranges.first, value_memory_, accumulator_ + r * value_columns_,
                 value_columns_);
    }
  }

  // A row's scores become logits. Returns how many keys of [begin, end), counted from the block's
  // key `first`, it sees.
  std::int64_t finish_row(std::size_t row, std::size_t first, std::size_t begin, std::size_t end,
                          std::size_t columns, float* logits) const {
    if (!has_terms_) return static_cast<std::int64_t>(end - begin);
    return finish_logits(terms_of(row, first), begin, end, columns, logits);
  }

  void run_row_tile(std::size_t row, std::size_t rows, const Ranges& ranges) {
    HWY_ALIGN float tile[kBlockKeys * kPanelRows];
    HWY_ALIGN float rescale[kStateRows];
    // The product rounds rows up to four, and pairs are of two.
    const std::size_t first = ranges.first / 4 * 4;
    score_row_tile(row, rows, first, ranges.last, tile);
    RowTileState& state = states_[row / panel_width()];
    const bool empty = state.is_empty(rows);
    finish_row_tile(row, rows, first, ranges, tile);
    softmax_.transposed(tile, rows, ranges.last - first, state, rescale);
    add_row_tile(row, rows, first, ranges, tile, rescale, empty);
  }

  // tile[j][r] = the score of the row tile's row r and the block's key first + j.
  void score_row_tile(std::size_t row, std::size_t rows, std::size_t first, std::size_t last,
                      float* tile) const {
    const std::size_t width = panel_width();
    if (in_pairs_) {
      return bf16::multiply_columns({.rows = last - first,
                                     .columns = width,
                                     .depth = dim_ / 2,
                                     .a = keys_.data + first * keys_.stride,
                                     .a_stride = keys_.stride,
                                     .b = query_pairs_ + row * dim_ / 2,
                                     .b_panel = 0,
                                     .c = tile,
                                     .c_stride = width,
                                     .factors = lambda_.data() + row});
    }
    multiply<LeftRows, Into::replace>({.rows = last - first,
                                       .columns = rows,
                                       .depth = dim_,
                                       .a = keys_.data + first * keys_.stride,
                                       .a_stride = keys_.stride,
                                       .b = queries_ + row * dim_,
                                       .b_panel = 0,
                                       .c = tile,
                                       .c_stride = width});
  }

  // A row tile's scores become logits, those a row does not see -inf.
  void finish_row_tile(std::size_t row, std::size_t rows, std::size_t first, const Ranges& ranges,
                       float* tile) {
    RowTileState& state = states_[row / panel_width()];
    HWY_ALIGN std::int32_t begin[kStateRows] = {}, end[kStateRows] = {};
    for (std::size_t r = 0; r < rows; ++r) {
      begin[r] = static_cast<std::int32_t>(ranges.begin[r] - first);
      end[r] = static_cast<std::int32_t>(ranges.end[r] - first);
    }
    const std::size_t keys = ranges.last - first;
    if (has_terms_) {
      HWY_ALIGN float by_row[kPanelRows * kBlockKeys];
      transpose(tile, panel_width(), keys, rows, by_row, kBlockKeys);
      for (std::size_t r = 0; r < rows; ++r) {
        state.support[r] += finish_row(row + r, first, ranges.begin[r] - first,
                                       ranges.end[r] - first, keys, by_row + r * kBlockKeys);
      }
      transpose(by_row, kBlockKeys, rows, keys, tile, panel_width());
    } else {
      for (std::size_t r = 0; r < rows; ++r) state.support[r] += end[r] - begin[r];
    }
    if (ranges.ragged || ranges.first > first) mask_outside(tile, begin, end, rows, keys);
  }

  // Value sums of the row tile, from its weights of the block's keys from `first` on.
  void add_row_tile(std::size_t row, std::size_t rows, std::size_t first, const Ranges& ranges,
                    float* tile, const float* rescale, bool empty) {
    ValueSums sums{.rows = rows,
                   .columns = value_dim_,
                   .first = first,
                   .last = ranges.last,
                   .weights = tile,
                   .rescale = rescale,
                   .empty = empty,
                   .sums = accumulator_ + row * value_columns_};
    const auto sees = [&](std::size_t r, std::size_t j) { return row_sees(row + r, ranges, r, j); };
    if (has_value_pairs_) {
      bf16::round_row_pairs(tile, ranges.last - first, tile);
      add_value_pairs(sums, value_memory_, (block_keys_ + 1) / 2);
      if (!*values_finite_) add_nonfinite_values(sums, value_list_, sees);
      return;
    }
    const bool masks = ranges.ragged || call_.options.admitted || call_.options.bias;
    if (masks && !values_finite_) values_finite_ = all_finite(values_, block_keys_, value_dim_);
    sums.first = ranges.first;
    sums.weights += (ranges.first - first) * panel_width();
    masks && !*values_finite_ ? add_seen_values(sums, values_, sees) : add_values(sums, values_);
  }

  // Whether row `row`, the r-th of its row tile, sees key j of the block.
  bool row_sees(std::size_t row, const Ranges& ranges, std::size_t r, std::size_t j) const {
    return ranges.sees(r, j) && !terms_of(row, j).is_masked(0);
  }

  LogitTerms terms_of(std::size_t row, std::size_t first) const {
    const std::int64_t head = head_of(item_, group_, row);
    return logit_terms(call_.options, call_.scale.of(item_.batch, head), item_.batch, head,
                       query_of(item_, row), block_ + static_cast<std::int64_t>(first));
  }

  void write_row_tile(std::size_t row) {
    const std::size_t width = panel_width();
    transpose(accumulator_ + row * value_columns_, width, value_dim_, width, row_sums_,
              value_columns_);
    write_rows(row, HWY_MIN(width, rows_ - row), row_sums_);
  }

  void write_streamed() {
    for (std::size_t at = 0; at < rows_ * value_columns_; at += value_columns_)
      restore_order(value_list_.type, accumulator_ + at, value_dim_, row_sums_ + at);
    write_rows(0, rows_, row_sums_);
  }

  // sums[r] are the value sums of row row + r, of one row tile.
  void write_rows(std::size_t row, std::size_t rows, float* sums) {
    const RowTileState& state = states_[row / panel_width()];
    if (state.is_empty(rows)) std::fill_n(sums, rows * value_columns_, 0.0f);
    call_.partials ? write_partials(call_, index_, row, rows, state, sums, value_columns_)
                   : write_tile_results(call_, item_, row, rows, state, sums, value_columns_);
  }

  const ForwardCall& call_;
  const std::int64_t group_;
  const std::size_t dim_, value_dim_, columns_, value_columns_, padded_rows_;
  const Softmax softmax_;
  const bool has_pairs_;        // bf16 queries and keys that the dot products can read
  const bool has_value_pairs_;  // values, likewise
  const bool has_terms_;
  Scratch scratch_;
  float* queries_;       // lambda q in log2, transposed; rows as for_each_vector() where streams_
  float* query_pairs_;   // q as it is, transposed, in pairs of bf16 numbers
  float* accumulator_;   // [row tile][value column][row]; [row][value column] where streams_
  float* key_memory_;    // of this block's keys, where they cannot be read as they lie
  float* value_memory_;  // of its values, likewise, or of pairs of them
  float* row_sums_;      // [row of one row tile][value column]
  std::vector<RowTileState> states_;  // one a row tile
  std::vector<KeyRange> ranges_;      // one a row
  std::vector<float> lambda_;         // one a row, in log2
  RowList query_list_, next_query_list_, key_list_, value_list_;
  std::vector<std::byte> queries_copy_, keys_copy_, values_copy_;  // of rows with columns apart
  // Of the work item of the plan at hand:
  std::int64_t index_ = 0;
  bool more_ = false;
  WorkItem item_{};
  std::size_t rows_ = 0;    // of all heads of the group, one head after the other
  bool streams_ = false;    // keys and values are read as they lie
  KeyRange seen_;           // by any row
  std::int64_t block_ = 0;  // first key of this block
  std::size_t block_keys_ = 0;
  bool pairs_fit_queries_ = false;
  bool queries_packed_ = false;
  bool in_pairs_ = false;              // this block's keys
  Rows keys_{}, values_{};             // of this block
  std::optional<bool> values_finite_;  // of this block, once anybody asked
};

void forward_task(const ForwardCall& call, std::int64_t begin, std::int64_t end) {
  ForwardTask task(call);
  for (std::int64_t index = begin; index < end; ++index) task.run(index, index + 1 < end);
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
