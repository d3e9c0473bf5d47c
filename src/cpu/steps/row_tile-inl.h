// RowTile: a panel's width of rows of a work item, at one block of keys.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_ROW_TILE_INL_H_
#undef ISENTROPE_ROW_TILE_INL_H_
#else
#define ISENTROPE_ROW_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/steps/logits-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"
#include "src/cpu/steps/tile_ranges.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// What all steps from scores to value sums have to know of the rows they work on.
struct RowTile {
  using Ranges = TileRanges<kStateRows>;

  const ForwardCall& call;
  const WorkItem& item;
  std::int64_t block;      // first key of the block
  std::size_t row, rows;   // of the item: the first, and how many
  const Ranges& ranges;    // from the block's first key
  const double* own_keys;  // of the rows, where somebody asks for distances
  // Keys at whose multiples the tile may begin. Products round their rows, the keys, up to four,
  // and pairs are of two.
  std::size_t step = 4;
  std::size_t first = ranges.first / step * step;  // the tile's first key

  [[nodiscard]] std::size_t keys() const { return ranges.last - first; }

  // What stands between the scores of row r, counted from the tile's first, and its logits, at key
  // `key` of the block.
  [[nodiscard]] LogitTerms terms(std::size_t r, std::size_t key) const {
    const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
    const std::int64_t head = head_of(item, group, row + r);
    LogitTerms terms = logit_terms(call.options, call.scale.of(item.batch, head), item.batch, head,
                                   query_of(item, row + r), block + static_cast<std::int64_t>(key));
    terms.stride = ranges.stride;
    return terms;
  }

  // Whether row r sees key `key` of the block.
  [[nodiscard]] bool sees(std::size_t r, std::size_t key) const {
    return ranges.sees(r, key) && !terms(r, key).is_masked(0);
  }

  // Whether soft-cap, bias or boolean mask have a part in the logits.
  [[nodiscard]] bool has_terms() const { return call.options.soft_cap > 0 || masks_one_by_one(); }
  // Whether a key that a range holds may be masked.
  [[nodiscard]] bool masks_one_by_one() const {
    return call.options.bias || call.options.attn_mask;
  }
};

// Where the rows of a tile lie: the keys at their own positions, which may lie outside the tile,
// counted as `first`, its first key, is.
struct RowPositions {
  const double* own_keys = nullptr;  // null where nobody asks for distances
  double first = 0;
  double step = 1;  // from key to key of the tile
};

// From key `first` of the block on.
HWY_INLINE RowPositions positions_of(const RowTile& tile, std::size_t first,
                                     std::int64_t step = 1) {
  const auto keys = static_cast<double>(step);
  return {tile.own_keys, static_cast<double>(tile.block) + static_cast<double>(first) * keys, keys};
}

// The scores of row r become logits. Returns how many keys of [begin, end), counted from the
// block's key `first`, the row sees.
// The support is counted here, because only here it is known which keys a boolean mask or a bias of
// -inf removes.
HWY_INLINE std::int64_t finish_row(const RowTile& tile, std::size_t r, std::size_t first,
                                   std::size_t begin, std::size_t end, std::size_t columns,
                                   float* logits) {
  if (!tile.has_terms()) return static_cast<std::int64_t>(end - begin);
  return finish_logits(tile.terms(r, first), begin, end, columns, logits);
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
