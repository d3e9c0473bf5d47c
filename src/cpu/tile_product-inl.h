// The product of two packed tiles: the one place where attention multiplies matrices.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TILE_PRODUCT_INL_H_
#undef ISENTROPE_TILE_PRODUCT_INL_H_
#else
#define ISENTROPE_TILE_PRODUCT_INL_H_
#endif

#include <cstddef>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

// Rows of the register tile. With two vectors of columns, 12 rows take 24 of AVX-512's 32 registers
// for sums; 6 rows take 12 of the 16 that other x86 targets have.
#if HWY_MAX_BYTES == 64
inline constexpr std::size_t kStripRows = 12;
#else
inline constexpr std::size_t kStripRows = 6;
#endif
// A shorter strip comes in thirds, so that 64 rows are 5 x 12 + 4 and not 6 x 12.
inline constexpr std::size_t kRowStep = kStripRows / 3;

// Columns of the register tile, the width of every packed panel.
HWY_INLINE std::size_t panel_width() { return 2 * hn::Lanes(Floats()); }

HWY_INLINE constexpr std::size_t round_up(std::size_t count, std::size_t step) {
  return (count + step - 1) / step * step;
}

// What becomes of the value that C already holds.
enum class Into { replace, add, scale };

// Where element (row, k) of the left operand lies: row * row() + k * depth(). Strides known when
// the kernel is compiled leave the address arithmetic to the load instruction.
template <std::size_t kRow, std::size_t kDepth>
struct LeftLayout {
  static constexpr std::size_t row() { return kRow; }
  static constexpr std::size_t depth() { return kDepth; }
  static constexpr std::size_t chunk() { return std::numeric_limits<std::size_t>::max(); }
};

// Rows as pack_rows() leaves them, panel after panel of the depth: the operand that another product
// reads as its right one serves as a left one too, without being transposed.
struct LeftPanels {
  static std::size_t row() { return panel_width(); }
  static constexpr std::size_t depth() { return 1; }
  static std::size_t chunk() { return panel_width(); }
};

// C[rows][columns] = ... + A B, over as many panels as the columns need. Rows are rounded up to
// kRowStep: A and C must have room for that many.
struct TileProduct {
  std::size_t rows, columns, depth;
  const float* a;
  std::size_t a_panel = 0;  // of LeftPanels: from one panel to the next
  const float* b;           // panel p starts at b + p * b_panel: depth rows of panel_width() floats
  std::size_t b_panel;
  float* c;
  std::size_t c_stride;
  const float* keep = nullptr;  // one factor a row, for Into::scale
};

// C[r][column, column + width) = (replace: 0, add: C, scale: keep[r] C) + sum_k A(r, k) B[k], r <
// kRows.
template <std::size_t kRows, typename Left, Into kInto>
HWY_INLINE void panel_product(const TileProduct& t, const float* HWY_RESTRICT b,
                              float* HWY_RESTRICT c) {
  const Floats d;
  using V = hn::Vec<Floats>;
  const std::size_t lanes = hn::Lanes(d);
  V low[kRows], high[kRows];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
  const float* HWY_RESTRICT a = t.a;
  for (std::size_t left = t.depth; left > 0; a += t.a_panel) {
    const std::size_t depth = HWY_MIN(left, Left::chunk());
    left -= depth;
    for (std::size_t k = 0; k < depth; ++k, b += 2 * lanes) {
      const V b_low = hn::Load(d, b), b_high = hn::Load(d, b + lanes);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, a[r * Left::row() + k * Left::depth()]);
        low[r] = hn::MulAdd(element, b_low, low[r]);
        high[r] = hn::MulAdd(element, b_high, high[r]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
    float* to = c + r * t.c_stride;
    if constexpr (kInto == Into::add) {
      low[r] = hn::Add(hn::Load(d, to), low[r]);
      high[r] = hn::Add(hn::Load(d, to + lanes), high[r]);
    } else if constexpr (kInto == Into::scale) {
      const V factor = hn::Set(d, t.keep[r]);
      low[r] = hn::MulAdd(factor, hn::Load(d, to), low[r]);
      high[r] = hn::MulAdd(factor, hn::Load(d, to + lanes), high[r]);
    }
    hn::Store(low[r], d, to);
    hn::Store(high[r], d, to + lanes);
  }
}

template <typename Left, Into kInto>
HWY_INLINE void multiply(const TileProduct& t) {
  const std::size_t width = panel_width();
  const float* b = t.b;
  for (std::size_t column = 0; column < t.columns; column += width, b += t.b_panel) {
    float* c = t.c + column;
    if (t.rows > 2 * kRowStep) {
      panel_product<kStripRows, Left, kInto>(t, b, c);
    } else if (t.rows > kRowStep) {
      panel_product<2 * kRowStep, Left, kInto>(t, b, c);
    } else {
      panel_product<kRowStep, Left, kInto>(t, b, c);
    }
  }
}

// The same sums in the same order, hence the same bits, over the pairs (row, k) that admits() names
// only. A hidden operand that is not finite must not meet even a weight of 0.
template <typename Left, Into kInto, typename Admits>
HWY_INLINE void multiply_where(const TileProduct& t, const Admits& admits) {
  static_assert(kInto != Into::replace);
  const Floats d;
  const std::size_t width = panel_width(), lanes = hn::Lanes(d);
  for (std::size_t r = 0; r < t.rows; ++r) {
    const auto factor = hn::Set(d, kInto == Into::scale ? t.keep[r] : 1.0f);
    for (std::size_t column = 0; column < t.columns; column += lanes) {
      const float* panel = t.b + column / width * t.b_panel + column % width;
      auto sum = hn::Zero(d);
      for (std::size_t k = 0; k < t.depth; ++k) {
        if (!admits(r, k)) continue;
        const auto left = hn::Set(d, t.a[r * Left::row() + k * Left::depth()]);
        sum = hn::MulAdd(left, hn::Load(d, panel + k * width), sum);
      }
      float* to = t.c + r * t.c_stride + column;
      hn::Store(hn::MulAdd(factor, hn::Load(d, to), sum), d, to);
    }
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
