// The products of one tile that end in gradients: dQ += dz K, dK += dz^T lambda Q, dV += weights^T
// dO.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_GRADIENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#undef ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#else
#define ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/product/bf16_pairs.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/row_list.h"
#include "src/cpu/steps/tile_ranges.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Two tiles of 48 x 128 floats are live at once. Fewer rows would make dK and dV, whose products
// are as deep as the row tile is tall, spend their time on loading and storing sums.
inline constexpr std::size_t kGradientRows = 4 * kRegisterRows;
using GradientRanges = TileRanges<kGradientRows>;
static_assert(kRegisterRows % 2 == 0);  // the two rows of a pair are of one row tile

// Rows of the row tile by keys of the block.
struct GradientTile {
  HWY_ALIGN float weights[kGradientRows * kGradientKeys];
  HWY_ALIGN float gradients[kGradientRows * kGradientKeys];  // dz
};

// The same in pairs of bf16: of two keys where sums run over keys, of two rows where over rows.
struct GradientPairs {
  HWY_ALIGN float keys[kGradientRows * kGradientKeys / 2];  // dz
  HWY_ALIGN float rows[kGradientRows / 2 * kGradientKeys];  // dz times lambda
  HWY_ALIGN float weights[kGradientRows / 2 * kGradientKeys];
};

struct GradientProducts {
  const GradientRanges& ranges;  // from the block's first key
  std::size_t rows;              // of the row tile
  std::size_t keys, key;         // of the key block, and the block's first among them
  std::size_t columns, value_columns;
  // Packed operands: rows of floats, or pairs of rows of bf16.
  const float *key_rows, *query_rows, *d_output_rows;
  float *dq, *dk, *dv;  // of the row tile, of the key block, of the key block
};

template <bool kWhereSeen, typename Left, typename Sees>
HWY_INLINE void add_product(const TileProduct& product, const Sees& sees) {
  if constexpr (kWhereSeen) {
    multiply_where<Left>(product, sees);
  } else {
    multiply<Left, Into::add>(product);
  }
}

// In floats. kWhereSeen: over the pairs of row and key that sees() names only.
template <bool kWhereSeen, typename Sees>
HWY_INLINE void add_gradients(const GradientProducts& p, const GradientTile& tile,
                              const Sees& sees) {
  using TileRows = LeftLayout<kGradientKeys, 1>;
  using TileColumns = LeftLayout<1, kGradientKeys>;
  const std::size_t width = panel_width(), first = p.ranges.first, last = p.ranges.last;
  for (std::size_t row = 0; row < p.rows; row += kRegisterRows) {
    add_product<kWhereSeen, TileRows>(
        {.rows = HWY_MIN(kRegisterRows, p.rows - row),
         .columns = p.columns,
         .depth = last - first,
         .a = tile.gradients + row * kGradientKeys + first,
         .b = p.key_rows + (p.key + first) * width,
         .b_panel = p.keys * width,
         .c = p.dq + row * p.columns,
         .c_stride = p.columns},
        [&](std::size_t r, std::size_t j) { return sees(row + r, first + j); });
  }
  for (std::size_t j = first / width * width; j < last; j += kRegisterRows) {
    const auto is_seen_by = [&](std::size_t r, std::size_t i) { return sees(i, j + r); };
    TileProduct product{.rows = HWY_MIN(kRegisterRows, last - j),
                        .columns = p.columns,
                        .depth = p.rows,
                        .a = tile.gradients + j,
                        .b = p.query_rows,
                        .b_panel = p.rows * width,
                        .c = p.dk + (p.key + j) * p.columns,
                        .c_stride = p.columns};
    add_product<kWhereSeen, TileColumns>(product, is_seen_by);
    product.columns = product.c_stride = p.value_columns;
    product.a = tile.weights + j;
    product.b = p.d_output_rows;
    product.c = p.dv + (p.key + j) * p.value_columns;
    add_product<kWhereSeen, TileColumns>(product, is_seen_by);
  }
}

// Rows row ... row + rows - 1 and keys first ... last - 1, whole panels. The queries' pairs are not
// scaled and the output gradients' know of no sink: dz and weights carry lambda and non_sink_weight
// instead.
HWY_INLINE void round_tile(GradientTile& tile, std::size_t row, std::size_t rows, std::size_t first,
                           std::size_t last, const float* lambda, const float* non_sink_weight,
                           GradientPairs& pairs) {
  const std::size_t end = row + rows, count = last - first;
  for (std::size_t r = row; r < end; ++r) {
    const std::size_t at = r * kGradientKeys + first;
    bf16::round_column_pairs(tile.gradients + at, count, pairs.keys + at / 2);
  }
  if (rows % 2 == 1) {
    std::fill_n(tile.gradients + end * kGradientKeys + first, count, 0.0f);
    std::fill_n(tile.weights + end * kGradientKeys + first, count, 0.0f);
  }
  for (std::size_t r = row; r < end; r += 2) {
    const std::size_t at = r * kGradientKeys + first, next = at + kGradientKeys;
    const std::size_t pair = r / 2 * kGradientKeys + first;
    bf16::round_scaled_row_pairs(tile.gradients + at, tile.gradients + next, lambda + r, count,
                                 pairs.rows + pair);
    bf16::round_scaled_row_pairs(tile.weights + at, tile.weights + next, non_sink_weight + r, count,
                                 pairs.weights + pair);
  }
}

// add_gradients() in pairs.
HWY_INLINE void add_gradients_in_pairs(const GradientProducts& p, const GradientPairs& pairs) {
  const std::size_t width = bf16::kColumns, last = p.ranges.last;
  const std::size_t pair = p.ranges.first / 2, row_pairs = (p.rows + 1) / 2;
  for (std::size_t row = 0; row < p.rows; row += kRegisterRows) {
    bf16::add_rows({.rows = HWY_MIN(kRegisterRows, p.rows - row),
                    .columns = p.columns,
                    .depth = (last + 1) / 2 - pair,
                    .a = pairs.keys + row * kGradientKeys / 2 + pair,
                    .b = p.key_rows + (p.key / 2 + pair) * width,
                    .b_panel = (p.keys + 1) / 2 * width,
                    .c = p.dq + row * p.columns,
                    .c_stride = p.columns});
  }
  for (std::size_t j = p.ranges.first / width * width; j < last; j += kRegisterRows) {
    bf16::Product product{.rows = HWY_MIN(kRegisterRows, last - j),
                          .columns = p.columns,
                          .depth = row_pairs,
                          .a = pairs.rows + j,
                          .b = p.query_rows,
                          .b_panel = row_pairs * width,
                          .c = p.dk + (p.key + j) * p.columns,
                          .c_stride = p.columns};
    bf16::add_transposed(product);
    product.columns = product.c_stride = p.value_columns;
    product.a = pairs.weights + j;
    product.b = p.d_output_rows;
    product.c = p.dv + (p.key + j) * p.value_columns;
    bf16::add_transposed(product);
  }
}

// add(row, column, number) for whatever is not finite in rows first ... last - 1, which
// pack_row_pairs() leaves out.
template <typename Add>
HWY_INLINE void for_each_nonfinite(const RowList& from, std::size_t first, std::size_t last,
                                   const Add& add) {
  for (std::size_t row = first; row < last; ++row) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(from.columns); ++c) {
      const float x = from.at(row, static_cast<std::int64_t>(c));
      if (!std::isfinite(x)) add(row, c, x);
    }
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
