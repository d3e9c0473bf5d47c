// RowTile: a panel's width of rows of a work item, at one block of keys.

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

// Data about its rows that every step from scores to value sums needs.
struct RowTile {
  using Ranges = TileRanges<kStateRows>;

  const Call& call;
  const WorkItem& item;
  std::int64_t block;      // first key of the block
  std::size_t row, rows;   // first row within the work item, and number of rows
  const Ranges& ranges;    // from the block's first key
  const double* own_keys;  // of the rows; null unless distances are needed
  KeysSeen masks;          // what boolean mask and bias do to keys within the ranges
  // Granularity of the tile's first key: products round keys up to four, and pairs hold two.
  std::size_t step = 4;
  std::size_t first = ranges.first / step * step;  // the tile's first key

  [[nodiscard]] std::size_t keys() const { return ranges.last - first; }

  // Returns soft-cap, bias and mask of row r of the tile at key `key` of the block.
  [[nodiscard]] LogitTerms terms(std::size_t r, std::size_t key) const {
    const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
    const std::int64_t head = head_of(item, group, row + r);
    LogitTerms terms = logit_terms(call.options, call.scale.of(item.batch, head), item.batch, head,
                                   query_of(item, row + r), block + static_cast<std::int64_t>(key));
    terms.stride = ranges.stride;
    return terms;
  }

  // Returns whether row r sees key `key` of the block.
  [[nodiscard]] bool sees(std::size_t r, std::size_t key) const {
    return ranges.sees(r, key) && !terms(r, key).is_masked(0);
  }

  // Returns whether soft-cap, bias or boolean mask apply to the logits.
  [[nodiscard]] bool has_terms() const {
    return call.options.soft_cap > 0 || masks > KeysSeen::all;
  }
  // Returns whether bias or boolean mask may hide keys within a range.
  [[nodiscard]] bool masks_one_by_one() const { return masks == KeysSeen::some; }
};

// Own keys of the rows, maybe outside the tile. They count like `first`, its first key.
struct RowPositions {
  const double* own_keys = nullptr;  // null unless distances are needed
  double first = 0;
  double step = 1;  // from key to key of the tile
};

// Returns the positions for keys from `first` of the block on.
HWY_INLINE RowPositions positions_of(const RowTile& tile, std::size_t first,
                                     std::int64_t step = 1) {
  const auto keys = static_cast<double>(step);
  return {tile.own_keys, static_cast<double>(tile.block) + static_cast<double>(first) * keys, keys};
}

// Turns the scores of row r into logits. Returns how many keys of [begin, end), counted from
// `first`, the row sees: boolean mask and bias of -inf are read here.
HWY_INLINE std::int64_t finish_row(const RowTile& tile, std::size_t r, std::size_t first,
                                   std::size_t begin, std::size_t end, std::size_t columns,
                                   float* logits) {
  if (!tile.has_terms()) return static_cast<std::int64_t>(end - begin);
  return finish_logits(tile.terms(r, first), begin, end, columns, logits);
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
