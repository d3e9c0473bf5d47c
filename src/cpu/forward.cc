// Forward pass of one task: a query block of one key head against the keys it sees.
//
//   for each block of keys              read in place, or copied once
//     for each row tile                 a panel's width of rows, one vector lane each
//       scores  S = K (lambda Q)^T      qk_tile
//       logits  Z                       logits, if there is a soft-cap, a bias or a boolean mask
//       -inf for keys a row does not see  mask_tile
//       weights P = 2^(Z - max)         softmax_tile, with the rows' states; then dropout
//       sums    O = rescale * O + V^T P pv_tile
//
// The few rows of a decode step would leave most lanes empty: decode.cc computes them.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/transpose-inl.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/mask_tile-inl.h"
#include "src/cpu/steps/query_block-inl.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/score_term-inl.h"
#include "src/cpu/steps/softmax_tile-inl.h"
#include "src/cpu/steps/tile_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// Turns the scores of a tile into logits, -inf for keys that a row does not see. Bias and mask are
// contiguous along a row's keys, so rows are transposed. Two transpositions cost less than strided
// reads, and most calls have neither.
void finish_logits_of(const RowTile& tile, float* logits, RowTileState& state) {
  const std::size_t first = tile.first, keys = tile.keys(), rows = tile.rows;
  if (tile.has_terms()) {
    HWY_ALIGN float by_row[kPanelRows * kBlockKeys];
    transpose(logits, panel_width(), keys, rows, by_row, kBlockKeys);
    for (std::size_t r = 0; r < rows; ++r) {
      state.support[r] += finish_row(tile, r, first, tile.ranges.begin[r] - first,
                                     tile.ranges.end[r] - first, keys, by_row + r * kBlockKeys);
    }
    transpose(by_row, kBlockKeys, rows, keys, logits, panel_width());
  } else {
    for (std::size_t r = 0; r < rows; ++r)
      state.support[r] += static_cast<std::int64_t>(tile.ranges.count(r));
  }
  mask_ranges(tile, logits, kMaskedLogit);
}

// Data kept across blocks of keys. Scores and weights share a tile on the stack, kept in L1.
class ForwardTask {
 public:
  explicit ForwardTask(const ForwardCall& call)
      : call_(call),
        sizes_(call, call.input.k.type),
        softmax_(softmax_for(weight_sums_of(call.output.statistics))),
        queries_(call, static_cast<bool>(call.output.statistics.distance), &call.masks),
        keys_(call.input.k, call.input.k_scale),
        values_(call.input.v, call.input.v_scale),
        scores_(sizes_.pairs, call.input.q, call.input.k,
                sizes_.pairs.serves_queries(call.input.q) && sizes_.pairs.serves(call.input.k)),
        sums_(sizes_.pairs, call.input.v, true),
        scratch_(queries_.arrays(sizes_.rows, sizes_.rows), keys_.arrays(kBlockKeys),
                 values_.arrays(kBlockKeys), scores_.arrays(sizes_.rows), sums_.arrays(),
                 Scratch::Array(results_.states, sizes_.rows / panel_width()),
                 Scratch::Array(results_.sums, sizes_.rows * sizes_.value_columns),
                 Scratch::Array(results_.by_row, kStateRows * sizes_.value_columns)) {}

  // Computes a work item. more: the next one follows.
  void run(std::int64_t index, bool more) noexcept {
    item_ = {index, more, item_of(call_.plan, index)};
    queries_.list(item_.at);
    for (std::size_t tile = 0; tile * panel_width() < queries_.rows(); ++tile)
      results_.states[tile].clear();
    scores_.take(queries_.queries(), queries_.lambda());
    if (scores_.has_packed()) fetch_next_queries();
    // Keys that no row sees are never read, so causal and windowed calls do only the visible work.
    const KeyRange seen = queries_.seen();
    for (std::int64_t block = seen.begin; block < seen.end; block += kBlockKeys)
      run_block(block, HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen.end - block));
    for (std::size_t row = 0; row < queries_.rows(); row += panel_width()) write_results(row);
  }

 private:
  struct Item {
    std::int64_t index = 0;
    bool more = false;
    WorkItem at{};
  };
  // Accumulated results, and room to transpose a tile at the end.
  struct Results {
    Buffer<RowTileState> states;  // one for each row tile
    Buffer<float> sums;           // [row tile][value column][row]
    Buffer<float> by_row;         // one row tile: [row][value column]
  };

  // Prefetches the next small item's queries while this one is computed: 1.03 times at n = 64.
  // Prefetching its keys and values too gave 0.97.
  void fetch_next_queries() {
    if (item_.more && queries_.rows() <= 128)
      queries_.fetch_next(item_of(call_.plan, item_.index + 1));
  }

  void run_block(std::int64_t block, std::int64_t block_keys) {
    const AttentionInput& in = call_.input;
    // Rows may skip a whole block, which is then not read.
    if (!queries_.any_sees(block, block + block_keys)) return;
    // Both lists are made together, because a paged cache has the same pages for keys and values.
    for (Operand* operand : {&keys_, &values_}) {
      operand->clear();
      operand->add_keys(in.pages, item_.at.batch, item_.at.kv_head, {block, block + block_keys});
      operand->resolve();
    }
    const bool had_packed = scores_.has_packed();
    scores_.place(keys_);
    if (!had_packed) fetch_next_queries();
    sums_.place(values_);
    for (std::size_t row = 0; row < queries_.rows(); row += panel_width()) {
      const std::size_t rows = HWY_MIN(panel_width(), queries_.rows() - row);
      const RowTile::Ranges ranges(rows, block, block_keys, [&](std::size_t r) {
        return queries_.range_in(row + r, block, block + block_keys);
      });
      // Tiles above the causal diagonal end here.
      if (ranges.empty()) continue;
      const RowTile tile{call_,
                         item_.at,
                         block,
                         row,
                         rows,
                         ranges,
                         queries_.own_keys_from(row),
                         queries_.masks_of_tile(row, rows, block, ranges),
                         sizes_.key_step};
      run_tile(tile);
    }
  }

  void run_tile(const RowTile& tile) {
    // Weights replace the logits, because L1 holds only one tile of 32 KiB.
    HWY_ALIGN float weights[kBlockKeys * kPanelRows];
    HWY_ALIGN float rescale[kStateRows];
    RowTileState& state = results_.states[tile.row / panel_width()];
    // Read before the softmax counts this block's keys. The first block overwrites the sums.
    const bool empty = state.is_empty(tile.rows);
    scores_.run(tile, weights);
    finish_logits_of(tile, weights, state);
    softmax_.transposed(weights, tile.rows, tile.keys(), positions_of(tile, tile.first), state,
                        rescale);
    if (call_.dropout) drop_weights(tile, weights);
    sums_.run(tile, weights, {sums_of(tile.row), rescale, empty});
  }

  // Sums of a row tile are contiguous, so that only they are in the cache while it is processed.
  float* sums_of(std::size_t row) const {
    return results_.sums.at(row * sizes_.value_columns, panel_width() * sizes_.value_columns);
  }

  void write_results(std::size_t row) {
    const std::size_t width = panel_width(), columns = sizes_.value_columns;
    const std::size_t rows = HWY_MIN(width, queries_.rows() - row);
    const RowTileState& state = results_.states[row / width];
    float* by_row = results_.by_row.data();
    // Products leave the sums transposed, as [column][row].
    transpose(sums_of(row), width, sizes_.value_dim, width, by_row, columns);
    write_rows(call_, item_.index, row, rows, state, by_row, columns);
  }

  const ForwardCall& call_;
  const BlockSizes sizes_;
  const Softmax softmax_;
  QueryBlock queries_;
  Operand keys_, values_;
  ScoreTerm scores_;
  ValueTerm sums_;
  const Pairs::Session session_{sizes_.pairs, scores_.uses_pairs() || sums_.uses_pairs()};
  Results results_;
  Scratch scratch_;
  Item item_;
};

// Returns the largest number of rows that run_decode() takes: as many as registers hold, or fewer
// if pair products are faster sooner. Returns 0 unless rows of keys and values are whole vectors
// read in place, and masks leave each row one run of keys. Dilated rows are supported for one
// query, whose rows share their keys, without masks, and without dropout, which draws for
// neighbouring keys.
std::int64_t most_rows_of_streams(const ForwardCall& call) {
  const AttentionInput& in = call.input;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const bool has_whole_vectors = in.k.extents[3] % lanes == 0 && in.v.extents[3] % lanes == 0;
  if (!has_whole_vectors || call.masks.has_gaps()) return 0;
  if (call.options.mask.dilation > 1)
    return in.q.extents[2] > 1 || call.masks || call.dropout ? 0 : std::int64_t{kRegisterRows};
  // Packing fewer keys does not pay: 12 keys in tiles took 1.4 to 1.8 times as long, 100 as long.
  constexpr std::int64_t kWorthPacking = 128;
  const Pairs pairs(in.k.type);
  std::size_t rows = kRegisterRows;
  if (in.keys() >= kWorthPacking && pairs.serves_queries(in.q) && pairs.serves(in.k) &&
      pairs.serves(in.v))
    rows = HWY_MIN(rows, pairs.kernels().decode_rows - 1);
  return static_cast<std::int64_t>(rows);
}

// One task object for all its items: its memory and its lists are set up once.
void forward_items(const ForwardCall& call, std::int64_t begin, std::int64_t end) {
  ForwardTask task(call);
  for (std::int64_t index = begin; index < end; ++index) task.run(index, index + 1 < end);
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(forward_items);
HWY_EXPORT(most_rows_of_streams);

void run_forward(const ForwardCall& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_items)(call, begin, end);
}
std::int64_t most_rows_of_decode(const ForwardCall& call) {
  return HWY_DYNAMIC_DISPATCH(most_rows_of_streams)(call);
}

}  // namespace isentrope
#endif  // HWY_ONCE
