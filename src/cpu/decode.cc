// Decode step of one task: the few queries of one key head against many keys.
//
//   for each block of keys              read in place, one row after the other
//     scores  S = lambda Q K^T          decode_tile: vectors run along columns
//     logits  Z                         logits, if there is a soft-cap or a bias
//     -inf for keys a row does not see  mask_tile; kept for received.cc if the caller asks
//     weights P = 2^(Z - max)           softmax_tile, with the rows' states; then dropout
//     sums    O = rescale * O + P V     decode_tile
//
// Each key and value is read once, so packing them would be most of the work.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/decode.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/decode_tile-inl.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/mask_tile-inl.h"
#include "src/cpu/steps/query_block-inl.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/softmax_tile-inl.h"
#include "src/cpu/steps/tile_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// At most one row tile. Clearing room for a whole query block was a fifth of the instructions.
class DecodeTask {
 public:
  explicit DecodeTask(const ForwardCall& call)
      : call_(call),
        columns_(static_cast<std::size_t>(call.input.q.extents[3])),
        value_columns_(static_cast<std::size_t>(call.input.v.extents[3])),
        softmax_(softmax_for(weight_sums_of(call.output.statistics))),
        block_(call, static_cast<bool>(call.output.statistics.distance), &call.masks),
        keys_(call.input.k, call.input.k_scale),
        values_(call.input.v, call.input.v_scale),
        scratch_(block_.arrays(kStateRows), keys_.arrays(kBlockKeys), values_.arrays(kBlockKeys),
                 Scratch::Array(queries_, kStateRows * round_up(columns_, panel_width())),
                 Scratch::Array(few_keys_, kFewKeys * columns_),
                 Scratch::Array(few_values_, kFewKeys * value_columns_),
                 Scratch::Array(sums_, kStateRows * sums_stride()),
                 Scratch::Array(by_row_, kStateRows * sums_stride())) {}

  void run(std::int64_t index) noexcept {
    item_ = item_of(call_.plan, index);
    state_.clear();
    block_.list(item_);
    clear_kept_logits();
    // Queries are scaled once, and keys are read as they are: packed queries need transposed keys.
    scale_rows(block_.queries(), block_.lambda(), keys_.type(), query_stride(), queries_.data());
    // Keys count in steps of a dilated row; skipped keys are not read.
    const KeyRange seen = block_.seen();
    for (std::int64_t key = 0; key < seen.size(); key += kBlockKeys) {
      const std::int64_t keys = HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen.size() - key);
      const RowTile::Ranges ranges(block_.rows(), key, keys, [&](std::size_t r) {
        const KeyRange range = block_.range(r);
        const std::int64_t begin = (range.begin - seen.begin) / seen.stride;
        return KeyRange{begin, begin + range.size()};
      });
      if (ranges.empty()) continue;
      const std::int64_t first = seen.begin + key * seen.stride;
      run_block({call_, item_, first, 0, block_.rows(), ranges, block_.own_keys_from(0),
                 block_.masks_of_tile(0, block_.rows(), first, ranges)});
    }
    for (std::size_t row = 0; row < block_.rows(); ++row) {
      // bf16 values are widened by parity, so their sums are in that order.
      restore_order(values_.type(), sums_.at(row * sums_stride(), value_columns_), value_columns_,
                    by_row_.at(row * sums_stride(), value_columns_));
    }
    write_rows(call_, index, 0, block_.rows(), state_, by_row_.data(), sums_stride());
  }

 private:
  std::size_t query_stride() const { return round_up(columns_, panel_width()); }
  std::size_t sums_stride() const { return round_up(value_columns_, panel_width()); }

  // Lists only keys that some row sees: other keys of a window, and padding, are never read.
  void list(Operand& operand, const RowTile& tile) const {
    const std::int64_t stride = block_.seen().stride;
    operand.clear();
    operand.add_keys(call_.input.pages, item_.batch, item_.kv_head,
                     {tile.block + static_cast<std::int64_t>(tile.ranges.first) * stride,
                      tile.block + static_cast<std::int64_t>(tile.ranges.last) * stride, stride});
    operand.resolve(/*streams=*/are_whole_codes(operand));
  }

  // Returns where the logits of row r are kept, from key `key` on.
  [[nodiscard]] float* kept_logits(std::size_t r, std::int64_t key) const {
    const std::int64_t group = call_.input.q.extents[1] / call_.plan.kv_heads;
    return &call_.logits(item_.batch, head_of(item_, group, r), query_of(item_, r), key);
  }

  void clear_kept_logits() const {
    for (std::size_t r = 0; r < block_.rows() && call_.logits; ++r)
      std::fill_n(kept_logits(r, item_.first_key), item_.last_key - item_.first_key, kMaskedLogit);
  }

  void keep_logits(const RowTile& tile, std::size_t r, const float* logits) const {
    const std::int64_t stride = block_.seen().stride;
    float* to = kept_logits(r, tile.block + static_cast<std::int64_t>(tile.ranges.first) * stride);
    if (stride == 1) return static_cast<void>(std::copy_n(logits, keys_.count(), to));
    for (std::size_t j = 0; j < keys_.count(); ++j, to += stride) *to = logits[j];
  }

  // Tiles are [row][key], as the sums over columns produce them.
  void run_block(const RowTile& tile) {
    HWY_ALIGN float weights[kStateRows * kBlockKeys];
    HWY_ALIGN float rescale[kStateRows];
    list(keys_, tile);
    list(values_, tile);
    const std::size_t rows = tile.rows, first = tile.ranges.first;
    // In whole vectors, so that the softmax has no tail; columns past the last key are masked.
    const std::size_t columns = round_up(keys_.count(), panel_width());
    score_keys(queries_.data(), query_stride(), rows, keys_, few_keys_.data(), weights, kBlockKeys);
    const bool empty = state_.is_empty(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      float* logits = weights + r * kBlockKeys;
      const std::size_t begin = tile.ranges.begin[r] - first, end = tile.ranges.end[r] - first;
      state_.support[r] += finish_row(tile, r, first, begin, end, columns, logits);
      // Most blocks are seen in full by every row, and end in whole vectors.
      if (begin > 0 || end < columns) mask_outside(logits, begin, end, columns);
      if (call_.logits) keep_logits(tile, r, logits);
    }
    // If no row's maximum grew, as is usual after the first blocks, sums are not rescaled.
    const bool max_grew =
        softmax_.of_rows(weights, kBlockKeys, rows, columns,
                         positions_of(tile, first, block_.seen().stride), state_, rescale);
    for (std::size_t r = 0; r < rows && (empty || max_grew); ++r) {
      float* sums = sums_.at(r * sums_stride(), sums_stride());
      for (std::size_t c = 0; c < sums_stride(); ++c) sums[c] = empty ? 0 : rescale[r] * sums[c];
    }
    for (std::size_t r = 0; r < rows && call_.dropout; ++r)
      drop_weights_of_row(tile, r, first, columns, weights + r * kBlockKeys);
    add_block_values(tile, weights);
  }

  // Rows that see different keys add their own keys' values: no masked value meets a weight of 0.
  void add_block_values(const RowTile& tile, const float* weights) {
    const RowTile::Ranges& ranges = tile.ranges;
    if (!ranges.ragged) {
      return add_values(weights, kBlockKeys, tile.rows, values_, 0, ranges.last - ranges.first,
                        few_values_.data(), sums_.data(), sums_stride());
    }
    for (std::size_t r = 0; r < tile.rows; ++r) {
      add_values(weights + r * kBlockKeys, kBlockKeys, 1, values_, ranges.begin[r] - ranges.first,
                 ranges.end[r] - ranges.first, few_values_.data(),
                 sums_.at(r * sums_stride(), sums_stride()), sums_stride());
    }
  }

  const ForwardCall& call_;
  // In whole vectors, without padding, because rows are read in place.
  const std::size_t columns_, value_columns_;
  const Softmax softmax_;
  QueryBlock block_;
  Operand keys_, values_;
  Buffer<float> queries_;                // lambda q in log2, in the order of vector_of()
  Buffer<float> few_keys_, few_values_;  // copies of a few rows that are not evenly spaced
  Buffer<float> sums_, by_row_;          // value sums, in that order and in columns
  Scratch scratch_;
  RowTileState state_;
  WorkItem item_{};
};

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define ISENTROPE_TASKS(define) define(run_decode, DecodeTask, ForwardCall)
#include "src/cpu/run_tasks-inl.h"
