// The forward pass of one task: a query block of one key head against the keys it sees.
//
//   for each block of keys              read where they lie, or copied once
//     for each row tile                 a panel's width of rows, a lane of the vectors each
//       scores  S = K (lambda Q)^T      qk_tile
//       logits  Z                       logits, where there is a soft-cap, a bias or a boolean mask
//       -inf where a row sees no key    mask_tile
//       weights P = 2^(Z - max)         softmax_tile, with the rows' states; then dropout
//       sums    O = rescale * O + V^T P pv_tile
//
// The few rows of a decode step would leave most lanes empty: those are decode.cc's.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/f32_arithmetic-inl.h"
#include "src/cpu/product/pairs_arithmetic-inl.h"
#include "src/cpu/product/transpose-inl.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/mask_tile-inl.h"
#include "src/cpu/steps/pv_tile-inl.h"
#include "src/cpu/steps/qk_tile-inl.h"
#include "src/cpu/steps/query_block-inl.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/softmax_tile-inl.h"
#include "src/cpu/steps/tile_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// The scores of a tile become logits, those a row does not see -inf.
// Terms of single keys are applied row by row, because a row's bias and mask lie along its keys.
// Two transpositions cost less than reading both across, and most calls have no terms.
void finish_logits_of(const RowTile& tile, float* logits, RowTileState& state) {
  HWY_ALIGN std::int32_t begin[kStateRows] = {}, end[kStateRows] = {};
  const std::size_t first = tile.first, keys = tile.keys(), rows = tile.rows;
  for (std::size_t r = 0; r < rows; ++r) {
    begin[r] = static_cast<std::int32_t>(tile.ranges.begin[r] - first);
    end[r] = static_cast<std::int32_t>(tile.ranges.end[r] - first);
  }
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
  if (tile.ranges.ragged || tile.ranges.first > first) mask_outside(logits, begin, end, rows, keys);
  if (tile.ranges.stride > 1) mask_between(logits, begin, tile.ranges.stride, rows, keys);
}

// What outlives a block of keys: the packed queries, the states of their rows and their value sums.
// Scores and weights live in one tile on the stack, which never leaves L1.
class ForwardTask {
 public:
  explicit ForwardTask(const ForwardCall& call)
      : call_(call),
        sizes_(call),
        softmax_(softmax_for(weight_sums_of(call.output.statistics))),
        queries_(call),
        keys_(call.input.k, call.input.k_scale),
        values_(call.input.v, call.input.v_scale),
        qk_f32_({}, sizes_.dim),
        qk_pairs_(sizes_.pairs, sizes_.dim),
        pv_f32_(sizes_.value_dim),
        pv_pairs_(sizes_.pairs, sizes_.value_dim),
        // Values need no look at their numbers: what pairs cannot hold is added afterwards. So
        // their arithmetic is chosen here, that of the scores with each block.
        pv_(sizes_.value_pairs ? static_cast<PvTile&>(pv_pairs_) : pv_f32_),
        scratch_({queries_.pointers(sizes_.rows),
                  queries_.next_pointers(sizes_.rows),
                  queries_.copy(sizes_.rows),
                  queries_.lambda(sizes_.rows),
                  queries_.ranges(sizes_.rows),
                  queries_.own_keys(sizes_.rows),
                  keys_.pointers(kBlockKeys),
                  keys_.scales(kBlockKeys),
                  keys_.copy(kBlockKeys),
                  values_.pointers(kBlockKeys),
                  values_.scales(kBlockKeys),
                  values_.copy(kBlockKeys),
                  qk_f32_.queries(sizes_.rows),
                  qk_f32_.key_copies(kBlockKeys),
                  qk_pairs_.queries(sizes_.key_pairs ? sizes_.rows : 0),
                  qk_pairs_.key_copies(sizes_.key_pairs ? kBlockKeys : 0),
                  pv_f32_.value_copies(sizes_.value_pairs ? 0 : kBlockKeys),
                  pv_pairs_.value_copies(sizes_.value_pairs ? kBlockKeys : 0),
                  {results_.states, sizes_.rows / panel_width()},
                  {results_.sums, sizes_.rows * sizes_.value_columns},
                  {results_.by_row, kStateRows * sizes_.value_columns}}) {}

  // more: the next work item is run after this one.
  void run(std::int64_t index, bool more) noexcept {
    item_ = {index, more, item_of(call_.plan, index)};
    queries_.list(item_.at);
    // The look at the queries' numbers is taken once; the one at the keys' once a block.
    item_.pairs_fit = sizes_.key_pairs && sizes_.pairs.fits(queries_.queries());
    item_.f32_packed = false;
    for (std::size_t tile = 0; tile * panel_width() < queries_.rows(); ++tile)
      results_.states[tile].clear();
    if (item_.pairs_fit) {
      qk_pairs_.pack_queries(queries_.queries(), queries_.lambda());
      fetch_next_queries();
    }
    // Keys beyond the union of the rows' ranges are never touched: a causal or windowed call does
    // the work of the keys it sees.
    const KeyRange seen = queries_.seen();
    for (std::int64_t block = seen.begin; block < seen.end; block += kBlockKeys)
      run_block(block, HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen.end - block));
    for (std::size_t row = 0; row < queries_.rows(); row += panel_width()) write_results(row);
  }

 private:
  // A key head's query heads share its keys, so the rows of a block are those of all of them.
  struct Sizes {
    explicit Sizes(const ForwardCall& call)
        : dim(static_cast<std::size_t>(call.input.q.extents[3])),
          value_dim(static_cast<std::size_t>(call.input.v.extents[3])),
          value_columns(round_up(value_dim, panel_width())),
          rows(round_up(static_cast<std::size_t>(call.input.q.extents[1] / call.plan.kv_heads *
                                                 call.plan.block_rows),
                        kStateRows)),
          pairs(call.input.q.type),
          key_pairs(pairs.serves(call.input.q) && pairs.serves(call.input.k)),
          value_pairs(pairs.serves(call.input.v)),
          key_step(value_pairs ? pairs.key_step() : 4) {}
    std::size_t dim, value_dim, value_columns;
    std::size_t rows;  // of the longest query block, in whole tiles
    Pairs pairs;
    bool key_pairs, value_pairs;  // whether they serve, numbers permitting
    std::size_t key_step;         // of row tiles
  };
  // What is known of the work item at hand.
  struct Item {
    std::int64_t index = 0;
    bool more = false;
    WorkItem at{};
    bool pairs_fit = false;  // all queries
    // Packing is put off until a block needs it: a call whose keys all fit never does.
    bool f32_packed = false;  // queries, for the blocks of keys that pairs do not fit
  };
  // What grows from block to block, and where a tile is turned round at the end.
  struct Results {
    Buffer<RowTileState> states;  // one a row tile
    Buffer<float> sums;           // [row tile][value column][row]
    Buffer<float> by_row;         // of one row tile: [row][value column]
  };

  // A small item's queries travel while the one before it is worked on: 1.03 times at n = 64. Its
  // keys and values, too, are too much at once: 0.97.
  void fetch_next_queries() {
    if (item_.more && queries_.rows() <= 128)
      queries_.fetch_next(item_of(call_.plan, item_.index + 1));
  }

  // The arithmetic of this block's scores, with its queries packed.
  // A single denormal sends its block alone to the f32 product, whose results are a matter of the
  // block's numbers and not of what other blocks hold.
  QkTile& qk_of_block() {
    if (item_.pairs_fit && sizes_.pairs.fits(keys_)) return qk_pairs_;
    if (!item_.f32_packed) {
      qk_f32_.pack_queries(queries_.queries(), queries_.lambda());
      if (!item_.pairs_fit) fetch_next_queries();
    }
    item_.f32_packed = true;
    return qk_f32_;
  }

  void run_block(std::int64_t block, std::int64_t block_keys) {
    const AttentionInput& in = call_.input;
    // A block between two keys of few rows is not even read.
    if (!queries_.any_sees(block, block + block_keys)) return;
    // Both lists are made together, for a paged cache has the same pages for keys and values.
    for (Operand* operand : {&keys_, &values_}) {
      operand->clear();
      operand->add_keys(in.pages, item_.at.batch, item_.at.kv_head, {block, block + block_keys});
      operand->resolve();
    }
    QkTile& qk = qk_of_block();
    qk.place_keys(keys_);
    pv_.place_values(values_);
    for (std::size_t row = 0; row < queries_.rows(); row += panel_width()) {
      const std::size_t rows = HWY_MIN(panel_width(), queries_.rows() - row);
      const RowTile::Ranges ranges(rows, block, block_keys,
                                   [&](std::size_t r) { return queries_.range(row + r); });
      // Tiles above the diagonal of a causal mask end here.
      if (ranges.empty()) continue;
      const RowTile tile{
          call_, item_.at, block, row, rows, ranges, queries_.own_keys_from(row), sizes_.key_step};
      run_tile(tile, qk);
    }
  }

  void run_tile(const RowTile& tile, const QkTile& qk) {
    // Weights take the place of the logits: one tile of 32 KiB is all that L1 has room for.
    HWY_ALIGN float weights[kBlockKeys * kPanelRows];
    HWY_ALIGN float rescale[kStateRows];
    RowTileState& state = results_.states[tile.row / panel_width()];
    // Asked before the softmax counts this block's keys: the first block replaces what is in the
    // memory of the sums, so that nobody has to clear it.
    const bool empty = state.is_empty(tile.rows);
    qk.run(tile, queries_.lambda() + tile.row, weights);
    finish_logits_of(tile, weights, state);
    softmax_.transposed(weights, tile.rows, tile.keys(), positions_of(tile, tile.first), state,
                        rescale);
    if (call_.dropout) drop_weights(tile, weights);
    pv_.run(tile, weights, {sums_of(tile.row), rescale, empty});
  }

  // Sums of a row tile lie together, so that it alone is in the cache while it is worked on.
  float* sums_of(std::size_t row) const {
    return results_.sums.at(row * sizes_.value_columns, panel_width() * sizes_.value_columns);
  }

  void write_results(std::size_t row) {
    const std::size_t width = panel_width(), columns = sizes_.value_columns;
    const std::size_t rows = HWY_MIN(width, queries_.rows() - row);
    const RowTileState& state = results_.states[row / width];
    float* by_row = results_.by_row.data();
    // Sums lie across, [column][row], as the products left them.
    transpose(sums_of(row), width, sizes_.value_dim, width, by_row, columns);
    write_rows(call_, item_.index, row, rows, state, by_row, columns);
  }

  const ForwardCall& call_;
  const Sizes sizes_;
  const Pairs::Session session_{sizes_.pairs, sizes_.key_pairs || sizes_.value_pairs};
  const Softmax softmax_;
  QueryBlock queries_;
  Operand keys_, values_;
  QkTileOf<F32> qk_f32_;
  QkTileOf<Pairs> qk_pairs_;
  PvTileOf<F32> pv_f32_;
  PvTileOf<Pairs> pv_pairs_;
  PvTile& pv_;
  Results results_;
  Scratch scratch_;
  Item item_;
};

// Rows of a decode step that run_decode() takes: as many as registers hold, or fewer where products
// of pairs overtake streams sooner. None where keys and values are not whole vectors, which are
// read where they lie, or where a row's logits have terms of their own, one a key. Of dilated rows
// those of one query, whose keys are all the same, and what they pass over only a stream leaves
// unread; not under dropout, which draws for neighbours.
std::int64_t most_rows_of_streams(const ForwardCall& call) {
  const AttentionInput& in = call.input;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const bool whole = in.k.extents[3] % lanes == 0 && in.v.extents[3] % lanes == 0;
  if (!whole || call.options.bias || call.options.attn_mask) return 0;
  if (call.options.mask.dilation > 1)
    return in.q.extents[2] > 1 || call.dropout ? 0 : std::int64_t{kRegisterRows};
  // Of 12 keys tiles took 1.4 to 1.8 times as long, of 100 as long.
  constexpr std::int64_t kWorthPacking = 128;
  const Pairs pairs(in.q.type);
  std::size_t rows = kRegisterRows;
  if (in.keys() >= kWorthPacking && pairs.serves(in.q) && pairs.serves(in.k) && pairs.serves(in.v))
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
