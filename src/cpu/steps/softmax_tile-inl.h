// Softmax over one tile of logits (in log2): unnormalised weights and the rows' new states out.
//
// The tile of a row tile is transposed, [key][row]: vectors then run along rows, each of which has
// a lane to itself. A decode step has too few rows to fill them; its tile is [row][key].
//
// Per-target header: compiled once for every instruction set.

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

// Both loops for a set of sums beside s0: what nobody asked for is not compiled into them.
struct Softmax {
  // A decode step's. In: tile[r][0, columns) logits, those outside a row's range -inf; columns a
  // multiple of the lanes. Out: weights 2^(z - m) in place, 0 where masked, with m the largest
  // logit of the row so far, and the rows' states, support apart. Returns whether any m grew:
  // rescale[r] is then the factor 2^(m_before - m) for the row's value sums.
  bool (*of_rows)(float* HWY_RESTRICT tile, std::size_t stride, std::size_t rows,
                  std::size_t columns, const RowPositions& positions, RowTileState& state,
                  float* HWY_RESTRICT rescale);
  // The same of a transposed tile: tile[key][row], and any number of keys.
  bool (*transposed)(float* HWY_RESTRICT tile, std::size_t rows, std::size_t keys,
                     const RowPositions& positions, RowTileState& state,
                     float* HWY_RESTRICT rescale);
};

// What a call's statistics need.
inline unsigned weight_sums_of(const RowStatistics& wanted) {
  unsigned sums = kOnlyS0;
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) { sums |= view ? statistic.sums : 0u; },
      wanted);
  return sums;
}

// Compiled in softmax_tile.cc for the forward pass, decode steps and the limits of the machine:
// the instances of all sets were two fifths of what each of them took to compile.
[[nodiscard]] Softmax softmax_for(unsigned sums);

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
