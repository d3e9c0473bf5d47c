// Softmax over one tile of logits (in log2): computes unnormalised weights and updates the rows'
// states.
//
// The tile of a row tile is transposed, [key][row], so that vectors run along rows. A decode step
// has too few rows to fill them; its tile is [row][key].

#if defined(ISENTROPE_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_SOFTMAX_TILE_INL_H_
#undef ISENTROPE_SOFTMAX_TILE_INL_H_
#else
#define ISENTROPE_SOFTMAX_TILE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "isentrope/statistics.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Both loops for a set of sums besides s0. Sums that were not requested are not compiled in.
struct Softmax {
  // For decode steps. In: tile[r][0, columns) logits, -inf outside a row's range; columns is a
  // multiple of the lanes. Out: weights 2^(z - m) in place, 0 if masked, with m the row's largest
  // logit so far; and the rows' states except support. Returns whether any m grew: rescale[r] is
  // then the factor 2^(m_before - m) of the row's value sums.
  bool (*of_rows)(float* HWY_RESTRICT tile, std::size_t stride, std::size_t rows,
                  std::size_t columns, const RowPositions& positions, RowTileState& state,
                  float* HWY_RESTRICT rescale);
  // Same for a transposed tile: tile[key][row], with any number of keys.
  bool (*transposed)(float* HWY_RESTRICT tile, std::size_t rows, std::size_t keys,
                     const RowPositions& positions, RowTileState& state,
                     float* HWY_RESTRICT rescale);
};

// Returns the sums that a call's statistics need.
inline unsigned weight_sums_of(const RowStatistics& wanted) {
  unsigned sums = kOnlyS0;
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) { sums |= view ? statistic.sums : 0u; },
      wanted);
  return sums;
}

// Returns the softmax for a set of sums. Compiled once, in softmax_tile.cc. Instances in the
// forward pass, decode steps and `isentrope bench --limits` took two fifths of their compile time.
[[nodiscard]] Softmax softmax_for(unsigned sums);

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
