// Packing: copies rows of the caller's type into the layouts that products read, in float.

#if defined(ISENTROPE_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_PACK_INL_H_
#undef ISENTROPE_PACK_INL_H_
#else
#define ISENTROPE_PACK_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/load-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Calls visit(T()) with the type of the rows, once a block, so that inner loops know their type.
template <typename Visit>
HWY_INLINE void for_type(DType type, const Visit& visit) {
  switch (type) {
    case DType::f32:
      return visit(float());
    case DType::bf16:
      return visit(BFloat16());
    case DType::f16:
      return visit(Float16());
    case DType::i8:  // codes are floats after resolve()
      return;
  }
}

// Distance of prefetching, because strided rows are too short for the hardware prefetcher.
inline constexpr std::size_t kRowsAhead = 8;

// Prefetches a row while others are packed: 5 % of the forward pass at n = 64, read once from L3.
HWY_INLINE void prefetch_row(const Operand& from, std::size_t row) {
  if (row >= from.count()) return;
  for (std::size_t byte = 0; byte < from.row_bytes(); byte += 64)
    hwy::Prefetch(from.row(row) + byte);
}

// bf16 pairs may lie at any even address.
template <typename T>
HWY_INLINE float load_float(const T* from) {
  T number;
  std::memcpy(&number, from, sizeof(T));
  return to_float(number);
}
HWY_INLINE float load_float(const TwoFloats* from) {
  const std::uint32_t first = from_float<BFloat16>(from->first).bits,
                      second = from_float<BFloat16>(from->second).bits;
  return std::bit_cast<float>(first | second << 16);
}

// Packs a vector of a panel's rows, then zeros: to[column][row], times factors[row] if given.
template <typename T>
HWY_INLINE void transpose_rows(const Operand& from, std::size_t first, std::size_t count,
                               const float* factors, float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t width = panel_width(), lanes = hn::Lanes(d);
  const std::size_t columns = from.row_bytes() / sizeof(T);
  const T* rows[hn::MaxLanes(Floats())];
  for (std::size_t r = 0; r < lanes; ++r) {
    prefetch_row(from, first + r + lanes);
    // Missing rows read the last one, so that no load needs a condition; they count as 0 below.
    rows[r] = reinterpret_cast<const T*>(from.row(HWY_MIN(first + r, from.count() - 1)));
  }
  std::size_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d4;
  const auto present = hn::FirstN(d, count);
  for (; c + 4 <= columns; c += 4) {
    hn::Vec<Floats> by_column[4];
    transpose_four_columns(
        d, [&](std::size_t r) HWY_ATTR { return load_floats(d4, rows[r] + c); }, by_column);
    for (std::size_t i = 0; i < 4; ++i) {
      auto numbers = hn::IfThenElseZero(present, by_column[i]);
      if (factors) numbers = hn::Mul(hn::LoadU(d, factors), numbers);
      hn::Store(numbers, d, to + (c + i) * width);
    }
  }
#endif
  for (; c < columns; ++c) {
    for (std::size_t r = 0; r < lanes; ++r) {
      const float number = r < count ? load_float(rows[r] + c) : 0;
      to[c * width + r] = factors ? factors[r] * number : number;
    }
  }
}

// Packs rows transposed, in panels of panel_width() rows: to[panel][column][row]. Missing rows of
// the last panel are 0; `factors` has an entry for each of them.
template <typename T>
HWY_INLINE void transpose_panels(const Operand& from, const float* factors,
                                 float* HWY_RESTRICT to) {
  const std::size_t width = panel_width(), lanes = hn::Lanes(Floats());
  const std::size_t rows = from.count(), columns = from.row_bytes() / sizeof(T);
  for (std::size_t row = 0; row < round_up(rows, width); row += lanes) {
    const std::size_t count = row < rows ? HWY_MIN(lanes, rows - row) : 0;
    transpose_rows<T>(from, row, count, factors ? factors + row : nullptr,
                      to + row / width * width * columns + row % width);
  }
}

// Computes to[0, count) = factor * from[0, count). Adds NaN to `poison` if a number is non-finite,
// else 0.
template <typename T>
HWY_INLINE void scale_row(const T* HWY_RESTRICT from, std::size_t count, float factor,
                          float* HWY_RESTRICT to, hn::Vec<Floats>& poison) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, factor), zero = hn::Zero(d);
  std::size_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    const auto x = hn::Mul(by, load_floats(d, from + c));
    poison = hn::MulAdd(zero, x, poison);
    hn::Store(x, d, to + c);
  }
  for (; c < count; ++c) {
    to[c] = factor * to_float(from[c]);
    poison = hn::MulAdd(zero, hn::Set(d, to[c]), poison);
  }
}

// NaN and Inf are detected here, because every number passes through a register.
template <typename T>
HWY_INLINE bool pack_rows_of(const Operand& from, std::size_t padded_rows, float* HWY_RESTRICT to,
                             const float* scale) {
  const std::size_t columns = from.columns(), width = panel_width();
  auto poison = hn::Zero(Floats());  // 0 * inf and 0 * NaN are NaN
  for (std::size_t row = 0; row < from.count(); ++row) {
    prefetch_row(from, row + kRowsAhead);
    const T* source = reinterpret_cast<const T*>(from.row(row));
    for (std::size_t first = 0; first < columns; first += width) {
      const std::size_t present = HWY_MIN(width, columns - first);
      float* panel_row = to + first * padded_rows + row * width;
      scale_row(source + first, present, scale ? scale[row] : 1, panel_row, poison);
      for (std::size_t c = present; c < width; ++c) panel_row[c] = 0;
    }
  }
  return hn::GetLane(hn::SumOfLanes(Floats(), poison)) == 0;
}

// Packs rows in panels of panel_width() columns: to[panel][row][column], times scale[row] if given.
// Missing columns are 0; a panel has room for padded_rows. Returns whether every element is finite.
HWY_INLINE bool pack_rows(const Operand& from, std::size_t padded_rows, float* HWY_RESTRICT to,
                          const float* scale = nullptr) {
  bool finite = true;
  for_type(from.type(), [&](auto type) HWY_ATTR {
    finite = pack_rows_of<decltype(type)>(from, padded_rows, to, scale);
  });
  return finite;
}

// Copies to to[row][column], rows `stride` apart; the gap stays undefined. In order, as in memory.
template <typename T>
HWY_INLINE void copy_rows(const Operand& from, std::size_t stride, float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), columns = from.row_bytes() / sizeof(T);
  for (std::size_t row = 0; row < from.count(); ++row, to += stride) {
    prefetch_row(from, row + kRowsAhead);
    const T* source = reinterpret_cast<const T*>(from.row(row));
    std::size_t c = 0;
    for (; c + lanes <= columns; c += lanes) hn::Store(load_floats(d, source + c), d, to + c);
    for (; c < columns; ++c) to[c] = to_float(source[c]);
  }
}

// Reads the block once more, which only masked calls need.
HWY_INLINE bool all_finite(const Strided<float>& rows, std::size_t count, std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto poison = hn::Zero(d);  // 0 * inf and 0 * NaN are NaN
  for (std::size_t row = 0; row < count; ++row) {
    const float* from = rows.data + static_cast<std::ptrdiff_t>(row) * rows.stride;
    std::size_t c = 0;
    for (; c + lanes <= columns; c += lanes)
      poison = hn::MulAdd(hn::Zero(d), hn::LoadU(d, from + c), poison);
    for (; c < columns; ++c) poison = hn::MulAdd(hn::Zero(d), hn::Set(d, from[c]), poison);
  }
  return hn::GetLane(hn::SumOfLanes(d, poison)) == 0;
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
