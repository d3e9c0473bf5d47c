// Transposes rows of floats, a vector of rows at a time.

#if defined(ISENTROPE_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TRANSPOSE_INL_H_
#undef ISENTROPE_TRANSPOSE_INL_H_
#else
#define ISENTROPE_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Returns the vector whose b-th four lanes are block(b).
template <typename D, typename Block>
HWY_INLINE hn::Vec<D> from_blocks([[maybe_unused]] D d, const Block& block, std::size_t first = 0) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return block(first);
  } else {
    const hn::Half<D> half;
    const std::size_t middle = first + hn::MaxLanes(half) / 4;
    return hn::Combine(d, from_blocks(half, block, middle), from_blocks(half, block, first));
  }
}

// Transposes four numbers of each of D's rows: those of row r, four(r), become lane r of to[0, 4).
// Loads place rows so that two interleavings finish, and whole vectors are stored. Later loads
// would wait for four stores of a quarter each. Up to 1.03 times at n = 64.
template <typename D, typename LoadFour>
HWY_INLINE void transpose_four_columns(D d, const LoadFour& load_four, hn::Vec<D> to[4]) {
  const auto rows = [&](std::size_t i) HWY_ATTR {
    return from_blocks(d, [&](std::size_t b) HWY_ATTR { return load_four(4 * b + i); });
  };
  const auto r0 = rows(0), r1 = rows(1), r2 = rows(2), r3 = rows(3);
  const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
  const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
  to[0] = hn::InterleaveLower(d, low02, low13);
  to[1] = hn::InterleaveUpper(d, low02, low13);
  to[2] = hn::InterleaveLower(d, high02, high13);
  to[3] = hn::InterleaveUpper(d, high02, high13);
}

// Transposes columns [0, done) of D's rows, starting at `from`. Returns done.
template <typename D>
HWY_INLINE std::size_t transpose_band(D d, const float* HWY_RESTRICT from, std::size_t from_stride,
                                      std::size_t columns, float* HWY_RESTRICT to,
                                      std::size_t to_stride) {
  const hn::Full128<float> d4;
  std::size_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    hn::Vec<D> by_column[4];
    transpose_four_columns(
        d, [&](std::size_t r) HWY_ATTR { return hn::LoadU(d4, from + r * from_stride + c); },
        by_column);
    for (std::size_t i = 0; i < 4; ++i) hn::StoreU(by_column[i], d, to + (c + i) * to_stride);
  }
  return c;
}
#endif

// Computes to[column][row] = from[row][column].
HWY_INLINE void transpose(const float* HWY_RESTRICT from, std::size_t from_stride, std::size_t rows,
                          std::size_t columns, float* HWY_RESTRICT to, std::size_t to_stride) {
  std::size_t r = 0;
  std::size_t done = 0;  // columns of rows [0, r)
#if HWY_TARGET != HWY_SCALAR
  const auto band = [&](auto d) HWY_ATTR {
    done = transpose_band(d, from + r * from_stride, from_stride, columns, to + r, to_stride);
    r += hn::Lanes(d);
  };
  // Then bands of four, then single rows, because tiles of odd heights are rare.
  while (r + hn::Lanes(Floats()) <= rows) band(Floats());
  while (r + 4 <= rows) band(hn::Full128<float>());
#endif
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t c = row < r ? done : 0; c < columns; ++c) {
      to[c * to_stride + row] = from[row * from_stride + c];
    }
  }
}

// Side of the blocks that turn_blocks() transposes in place.
inline constexpr std::size_t kTurned = 16;

// Transposes each kTurned x kTurned block of numbers[rows][columns] in place. Both must be
// multiples of kTurned.
HWY_INLINE void turn_blocks(float* numbers, std::size_t rows, std::size_t columns) {
  HWY_ALIGN float turned[kTurned * kTurned];
  for (std::size_t row = 0; row < rows; row += kTurned) {
    for (std::size_t c = 0; c < columns; c += kTurned) {
      float* const block = numbers + row * columns + c;
      transpose(block, columns, kTurned, kTurned, turned, kTurned);
      for (std::size_t r = 0; r < kTurned; ++r)
        std::copy_n(turned + r * kTurned, kTurned, block + r * columns);
    }
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
