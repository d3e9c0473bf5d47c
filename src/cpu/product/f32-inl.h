// The register-blocked product of two matrices in float.

#if defined(ISENTROPE_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_F32_INL_H_
#undef ISENTROPE_F32_INL_H_
#else
#define ISENTROPE_F32_INL_H_
#endif

#include <cstddef>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/cpu/product/tile_product.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

// Rows of the register tile. With two vectors of columns, 12 rows take 24 of AVX-512's 32 registers
// for sums; 6 rows take 12 of the 16 that other x86 targets have.
#if HWY_MAX_BYTES == 64
inline constexpr std::size_t kRegisterRows = 12;
#else
inline constexpr std::size_t kRegisterRows = 6;
#endif
// The last rows use a tile of a third of the height, so that 64 rows are 5 x 12 + 4 and not 6 x 12.
// Instances for every height would be twelve times the code.
inline constexpr std::size_t kRegisterRowStep = kRegisterRows / 3;

// Columns of the register tile, and width of every packed panel.
HWY_INLINE std::size_t panel_width() { return 2 * hn::Lanes(Floats()); }

HWY_INLINE constexpr std::size_t round_up(std::size_t count, std::size_t step) {
  return (count + step - 1) / step * step;
}
HWY_INLINE constexpr std::size_t round_down(std::size_t count, std::size_t step) {
  return count / step * step;
}

// Operation on the value of C: it is replaced, added to, or first times its column's factor.
enum class Into { replace, add, scale };

// Offset of element (row, k) of the left operand. Constant strides become part of the load.
template <std::size_t kRow, std::size_t kDepth>
struct LeftLayout {
  static constexpr std::size_t row(const TileProduct<float>&) { return kRow; }
  static constexpr std::size_t depth(const TileProduct<float>&) { return kDepth; }
  static constexpr std::size_t chunk() { return std::numeric_limits<std::size_t>::max(); }
  template <std::size_t kRows>
  static void fetch(const TileProduct<float>&, const float* /*a*/, std::size_t /*k*/) {}
};

// Rows in memory, and the same read transposed (LeftColumns). Both prefetch the next cache lines
// into L1: 1.09 times at n = 64, where rows are read once, 1.01 at n = 2048. With other work on the
// shared caches it is up to 1.04.
struct LeftRows : LeftLayout<0, 1> {
  static std::size_t row(const TileProduct<float>& t) { return t.a_stride; }
  template <std::size_t kRows>
  static HWY_INLINE void fetch(const TileProduct<float>& t, const float* a, std::size_t k) {
    if (k % kFloatsOfLine != 0) return;
#pragma GCC unroll 16
    for (std::size_t r = kRows; r < 2 * kRows; ++r) hwy::Prefetch(a + r * t.a_stride + k);
  }
  static constexpr std::size_t kFloatsOfLine = 16;
};
struct LeftColumns : LeftLayout<1, 0> {
  static std::size_t depth(const TileProduct<float>& t) { return t.a_stride; }
  template <std::size_t kRows>
  static HWY_INLINE void fetch(const TileProduct<float>& t, const float* a, std::size_t k) {
    const float* ahead = a + (k + kAhead) * t.a_stride;
    hwy::Prefetch(ahead);
    if constexpr (kRows > 8) hwy::Prefetch(ahead + kRows - 1);
  }
  static constexpr std::size_t kAhead = 20;  // 8: 0.95 times at n = 64; 32 or 48: 0.99
};

// Rows as pack_rows() packs them, in panels of the depth: a right operand reused as a left one.
struct LeftPanels : LeftLayout<0, 1> {
  static std::size_t row(const TileProduct<float>&) { return panel_width(); }
  static std::size_t chunk() { return panel_width(); }
};

// Computes columns [column, column + kVectors vectors) of rows row ... row + kRows - 1 of C.
template <std::size_t kRows, std::size_t kVectors, typename Left, Into kInto>
HWY_INLINE void panel_product(const TileProduct<float>& t, std::size_t row, std::size_t column) {
  const Floats d;
  using V = hn::Vec<Floats>;
  const std::size_t lanes = hn::Lanes(d);
  V sums[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) sums[r][i] = hn::Zero(d);
  }
  const std::size_t a_row = Left::row(t), a_depth = Left::depth(t);
  const float* HWY_RESTRICT a = t.a + row * a_row;
  const float* HWY_RESTRICT b = t.b + column / panel_width() * t.b_panel;
  for (std::size_t left = t.depth; left > 0; a += t.a_panel) {
    const std::size_t depth = HWY_MIN(left, Left::chunk());
    left -= depth;
    for (std::size_t k = 0; k < depth; ++k, b += panel_width()) {
      Left::template fetch<kRows>(t, a, k);
      V right[kVectors];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kVectors; ++i) right[i] = hn::Load(d, b + i * lanes);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, a[r * a_row + k * a_depth]);
#pragma GCC unroll 16
        for (std::size_t i = 0; i < kVectors; ++i)
          sums[r][i] = hn::MulAdd(element, right[i], sums[r][i]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kVectors; ++i) {
    [[maybe_unused]] V by = hn::Zero(d);
    if constexpr (kInto == Into::scale) by = hn::Load(d, t.factors + column + i * lanes);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      float* to = t.c + (row + r) * t.c_stride + column + i * lanes;
      V result = sums[r][i];
      if constexpr (kInto == Into::add) result = hn::Add(hn::Load(d, to), result);
      if constexpr (kInto == Into::scale) result = hn::MulAdd(by, hn::Load(d, to), result);
      hn::Store(result, d, to);
    }
  }
}

// Dispatches to instances of constant height, because sums indexed at run time are in memory.
template <std::size_t kVectors, typename Left, Into kInto>
HWY_INLINE void rows_product(const TileProduct<float>& t, std::size_t row, std::size_t column) {
  const std::size_t rows = t.rows - row;
  if (rows > 2 * kRegisterRowStep) {
    panel_product<kRegisterRows, kVectors, Left, kInto>(t, row, column);
  } else if (rows > kRegisterRowStep) {
    panel_product<2 * kRegisterRowStep, kVectors, Left, kInto>(t, row, column);
  } else {
    panel_product<kRegisterRowStep, kVectors, Left, kInto>(t, row, column);
  }
}

// A panel of the right operand stays in L1 while rows of the left one stream past.
template <typename Left, Into kInto>
HWY_INLINE void multiply(const TileProduct<float>& t) {
  for (std::size_t column = 0; column < t.columns; column += panel_width()) {
    for (std::size_t row = 0; row < t.rows; row += kRegisterRows) {
      if (t.columns - column > hn::Lanes(Floats())) {
        rows_product<2, Left, kInto>(t, row, column);
      } else {
        rows_product<1, Left, kInto>(t, row, column);
      }
    }
  }
}

// Same sums in the same order as multiply<Left, Into::add>(), hence the same bits, but only over
// pairs (row, k) that sees() allows. A masked non-finite operand must not meet a weight of 0.
template <typename Left, typename Sees>
HWY_INLINE void multiply_where(const TileProduct<float>& t, const Sees& sees) {
  const Floats d;
  const std::size_t width = panel_width(), lanes = hn::Lanes(d);
  for (std::size_t r = 0; r < t.rows; ++r) {
    for (std::size_t column = 0; column < t.columns; column += lanes) {
      const float* panel = t.b + column / width * t.b_panel + column % width;
      auto sum = hn::Zero(d);
      for (std::size_t k = 0; k < t.depth; ++k) {
        if (!sees(r, k)) continue;
        const auto left = hn::Set(d, t.a[r * Left::row(t) + k * Left::depth(t)]);
        sum = hn::MulAdd(left, hn::Load(d, panel + k * width), sum);
      }
      float* to = t.c + r * t.c_stride + column;
      hn::Store(hn::Add(hn::Load(d, to), sum), d, to);
    }
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
