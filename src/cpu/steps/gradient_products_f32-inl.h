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

  void finish_rows(GradientTile&, std::size_t, std::size_t) noexcept override {}

  void add(const GradientTile& tile, const GradientSums& to) const noexcept override {
    // The register tile rounds rows up, so it may include keys that no query sees.
    const bool narrow = tile.ranges.first > 0 || tile.ranges.last < tile.ranges.block;
    const bool masks = tile.ranges.ragged || narrow || tile.masks_one_by_one();
    masks && !finite() ? add_over<true>(tile, to) : add_over<false>(tile, to);
  }

 private:
  // kWhereSeen: restricted to pairs of row and key that the tile's sees() allows.
  template <bool kWhereSeen, typename Left, Into kInto, typename Sees>
  static HWY_INLINE void add_product(const TileProduct<float>& product, const Sees& sees) {
    if constexpr (kWhereSeen) {
      multiply_where<Left>(product, sees);
    } else {
      isentrope::HWY_NAMESPACE::multiply<Left, kInto>(product);
    }
  }

  // Two instances, because calling sees() for every pair is rarely needed.
  template <bool kWhereSeen>
  void add_over(const GradientTile& tile, const GradientSums& to) const {
    using Rows = LeftLayout<kGradientKeys, 1>;
    using Columns = LeftLayout<1, kGradientKeys>;
    const std::size_t width = panel_width(), rows = tile.queries.rows;
    const std::size_t first = tile.ranges.first, last = tile.ranges.last;
    // The tile of dz is the left operand along its rows for dq and along its columns for dk, in the
    // same memory.
    for (std::size_t row = 0; row < rows; row += kRegisterRows) {
      add_product<kWhereSeen, Rows, Into::add>(
          {.rows = HWY_MIN(kRegisterRows, rows - row),
           .columns = to.columns,
           .depth = last - first,
           .a = tile.gradients + row * kGradientKeys + first,
           .b = key_rows_.data() + (tile.key + first) * width,
           .b_panel = keys_->count() * width,
           .c = to.dq.data() + row * to.columns,
           .c_stride = to.columns},
          [&](std::size_t r, std::size_t j) { return tile.sees(row + r, first + j); });
    }
    for (std::size_t j = first / width * width; j < last; j += kRegisterRows) {
      const auto is_seen = [&](std::size_t r, std::size_t i) { return tile.sees(i, j + r); };
      TileProduct<float> product{.rows = HWY_MIN(kRegisterRows, last - j),
                                 .columns = to.columns,
                                 .depth = rows,
                                 .a = tile.gradients + j,
                                 .b = right(0),
                                 .b_panel = rows * width,
                                 .c = to.dk.data() + (tile.key + j) * to.columns,
                                 .c_stride = to.columns};
      add_product<kWhereSeen, Columns, Into::add>(product, is_seen);
      product.columns = product.c_stride = to.value_columns;
      product.a = tile.weights + j;
      product.b = right(1);
      product.c = to.dv.data() + (tile.key + j) * to.value_columns;
      add_product<kWhereSeen, Columns, Into::add>(product, is_seen);
    }
  }
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
