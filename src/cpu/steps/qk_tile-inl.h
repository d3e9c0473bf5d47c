// Scores of a row tile: rows of the left operand by transposed keys, in floats or in pairs of bf16.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_QK_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_QK_TILE_INL_H_
#undef ISENTROPE_QK_TILE_INL_H_
#else
#define ISENTROPE_QK_TILE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/bf16_pairs.h"
#include "src/cpu/product/f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Operands as pack-inl.h and pack_pairs-inl.h leave them. Floats carry each row's factor; pairs do
// not, and are multiplied by it afterwards.
struct Scores {
  std::size_t depth;        // numbers of a row
  bool in_pairs;            // both operands
  const float* rows;        // in panels of padded_rows
  std::size_t padded_rows;  //
  const float* factors;     // of pairs: one a row, for whole steps of rows
  const float* keys;        // transposed, in panels of keys
};

// to[r][j] for rows row ... row + rows - 1 and keys first ... first + columns - 1, whole panels.
HWY_INLINE void multiply_scores(const Scores& scores, std::size_t row, std::size_t rows,
                                std::size_t first, std::size_t columns, float* to,
                                std::size_t stride) {
  const std::size_t width = panel_width();
  const std::size_t depth = scores.in_pairs ? scores.depth / 2 : scores.depth;
  const float* a = scores.rows + row * width;
  const float* b = scores.keys + first * depth;
  if (scores.in_pairs) {
    return bf16::multiply_rows({.rows = rows,
                                .columns = columns,
                                .depth = depth,
                                .a = a,
                                .a_panel = scores.padded_rows * width,
                                .b = b,
                                .b_panel = width * depth,
                                .c = to,
                                .c_stride = stride,
                                .factors = scores.factors + row});
  }
  multiply<LeftPanels, Into::replace>({.rows = rows,
                                       .columns = columns,
                                       .depth = depth,
                                       .a = a,
                                       .a_panel = scores.padded_rows * width,
                                       .b = b,
                                       .b_panel = width * depth,
                                       .c = to,
                                       .c_stride = stride});
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
