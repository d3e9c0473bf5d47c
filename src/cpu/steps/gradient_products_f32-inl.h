// GradientProducts in floats.

#if defined(ISENTROPE_GRADIENT_PRODUCTS_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_PRODUCTS_F32_INL_H_
#undef ISENTROPE_GRADIENT_PRODUCTS_F32_INL_H_
#else
#define ISENTROPE_GRADIENT_PRODUCTS_F32_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/f32_arithmetic-inl.h"
#include "src/cpu/steps/gradient_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

template <>
class GradientProductsOf<F32> final : public GradientOperands<F32> {
 public:
  using GradientOperands::GradientOperands;

  void finish_rows(GradientTile&, const TileNumbers&, RowSide, std::size_t,
                   std::size_t) noexcept override {}

  // The numbers of a tile are the left operand along its rows here and along its columns below, in
  // the same memory.
  void add_to_rows(const GradientTile& tile, const TileNumbers& numbers, KeySide keys_of,
                   const TileSums& to) const noexcept override {
    masks(tile) && !keys_finite_[keys_of] ? add_to_rows<true>(tile, numbers, keys_of, to)
                                          : add_to_rows<false>(tile, numbers, keys_of, to);
  }

  void add_to_keys(const GradientTile& tile, const TileNumbers& numbers, RowSide rows_of,
                   const TileSums& to) const noexcept override {
    masks(tile) && !rows_finite_[rows_of] ? add_to_keys<true>(tile, numbers, rows_of, to)
                                          : add_to_keys<false>(tile, numbers, rows_of, to);
  }

 private:
  // Returns whether some row of the register tiles does not see some key.
  static bool masks(const GradientTile& tile) {
    // The register tile rounds rows up, so it may include keys that no query sees.
    const bool narrow = tile.ranges.first > 0 || tile.ranges.last < tile.ranges.block;
    return tile.ranges.ragged || narrow || tile.masks_one_by_one();
  }

  // kWhereSeen: restricted to pairs of row and key that sees() allows. Two instances, because
  // calling it for every pair is rarely needed.
  template <bool kWhereSeen, typename Left, typename Sees>
  static HWY_INLINE void add_product(const TileProduct<float>& product, const Sees& sees) {
    if constexpr (kWhereSeen) {
      multiply_where<Left>(product, sees);
    } else {
      isentrope::HWY_NAMESPACE::multiply<Left, Into::add>(product);
    }
  }

  template <bool kWhereSeen>
  void add_to_rows(const GradientTile& tile, const TileNumbers& numbers, KeySide keys_of,
                   const TileSums& to) const {
    const std::size_t width = panel_width(), rows = tile.queries.rows, first = tile.ranges.first;
    for (std::size_t row = 0; row < rows; row += kRegisterRows) {
      add_product<kWhereSeen, LeftLayout<kGradientKeys, 1>>(
          {.rows = HWY_MIN(kRegisterRows, rows - row),
           .columns = to.columns,
           .depth = tile.ranges.last - first,
           .a = numbers.numbers + row * kGradientKeys + first,
           .b = key_rows_[keys_of].data() + (tile.key + first) * width,
           .b_panel = keys_[keys_of]->count() * width,
           .c = to.sums + row * to.columns,
           .c_stride = to.columns},
          [&](std::size_t r, std::size_t j) { return tile.sees(row + r, first + j); });
    }
  }

  template <bool kWhereSeen>
  void add_to_keys(const GradientTile& tile, const TileNumbers& numbers, RowSide rows_of,
                   const TileSums& to) const {
    const std::size_t width = panel_width(), rows = tile.queries.rows, last = tile.ranges.last;
    for (std::size_t j = tile.ranges.first / width * width; j < last; j += kRegisterRows) {
      add_product<kWhereSeen, LeftLayout<1, kGradientKeys>>(
          {.rows = HWY_MIN(kRegisterRows, last - j),
           .columns = to.columns,
           .depth = rows,
           .a = numbers.numbers + j,
           .b = right_of(rows_of),
           .b_panel = rows * width,
           .c = to.sums + (tile.key + j) * to.columns,
           .c_stride = to.columns},
          [&](std::size_t r, std::size_t i) { return tile.sees(i, j + r); });
    }
  }
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
