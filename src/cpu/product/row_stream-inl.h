// How a decode step reads keys and values: a few rows in one go, one after the other, where they
// lie.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_ROW_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_ROW_STREAM_INL_H_
#undef ISENTROPE_ROW_STREAM_INL_H_
#else
#define ISENTROPE_ROW_STREAM_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/load-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/product/widen_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Keys that are read in one go. Their values are summed by themselves, and read from L1 by the rows
// after the first two.
inline constexpr std::size_t kFewKeys = 16;

// Rows begin ... end - 1 where they lie or, where they do not lie evenly or are codes, in `memory`.
// One core reads 24 GB/s where it computes addresses, 15 where it reads them from the list.
template <typename T>
HWY_INLINE Strided<T> few_rows(const Operand& from, std::size_t begin, std::size_t end,
                               float* HWY_RESTRICT memory) {
  if constexpr (std::is_same_v<T, float>) {
    if (from.are_codes()) {
      widen_codes(from, begin, end, kFewKeys, memory);
      return {memory, static_cast<std::ptrdiff_t>(from.columns())};
    }
  }
  if (const auto rows = from.evenly<T>(begin, end)) return *rows;
  // A copy in L1 is read as fast as the original, and the loop that reads it stays the same.
  T* to = reinterpret_cast<T*>(memory);
  for (std::size_t r = begin; r < end; ++r, to += from.columns())
    std::memcpy(to, from.row(r), from.row_bytes());
  return {reinterpret_cast<const T*>(memory), static_cast<std::ptrdiff_t>(from.columns())};
}

// visit(first column, std::integral_constant of vectors) for pieces of the columns, as wide as sums
// of two rows stay in registers.
template <typename Visit>
HWY_INLINE void for_each_piece(std::size_t columns, const Visit& visit) {
  constexpr std::size_t kWide = kRegisterRows > 6 ? 8 : 4;
  const std::size_t lanes = hn::Lanes(Floats());
  for (std::size_t c = 0; c < columns;) {
    const std::size_t left = (columns - c) / lanes;
    if (left >= kWide) {
      visit(c, std::integral_constant<std::size_t, kWide>());
      c += kWide * lanes;
    } else if (left >= 4) {
      visit(c, std::integral_constant<std::size_t, 4>());
      c += 4 * lanes;
    } else {
      visit(c, std::integral_constant<std::size_t, 1>());
      c += lanes;
    }
  }
}

// Whether two vectors hold the even columns and the odd ones: a shift and an And make floats of two
// bf16 numbers, where a vector in the order of the columns takes a permutation and a shift.
template <typename T, std::size_t kVectors>
inline constexpr bool kByParity =
    (std::is_same_v<T, BFloat16>) && (kVectors % 2 == 0) && (HWY_TARGET != HWY_SCALAR) &&
    (std::endian::native == std::endian::little);

// use(i, vector) for the vectors of a piece, from `from` on.
template <std::size_t kVectors, typename T, typename Use>
HWY_INLINE void for_each_vector(const T* from, const Use& use) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  if constexpr (kByParity<T, kVectors>) {
    const hn::RebindToUnsigned<Floats> bits;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; i += 2) {
      const auto two = hn::LoadU(bits, reinterpret_cast<const std::uint32_t*>(from + i * lanes));
      use(i, hn::BitCast(d, hn::ShiftLeft<16>(two)));
      use(i + 1, hn::BitCast(d, hn::And(two, hn::Set(bits, 0xffff0000u))));
    }
  } else {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) use(i, load_floats(d, from + i * lanes));
  }
}

// to[row][...] = factors[row] from[row][...], rows `stride` floats apart, in the order in which
// for_each_vector() reads rows of type `order`: theirs, or f32.
HWY_INLINE void scale_rows(const Operand& from, const float* factors, DType order,
                           std::size_t stride, float* HWY_RESTRICT to) {
  const Floats d;
  for_type(from.type(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::size_t row = 0; row < from.count(); ++row) {
      const auto by = hn::Set(d, factors[row]);
      const auto* source = reinterpret_cast<const T*>(from.row(row));
      for_each_piece(from.columns(), [&](std::size_t c, auto count) HWY_ATTR {
        float* piece = to + row * stride + c;
        const auto store = [&](std::size_t i, auto numbers) HWY_ATTR {
          hn::Store(hn::Mul(by, numbers), d, piece + i * hn::Lanes(d));
        };
        if (order == from.type()) return for_each_vector<count()>(source + c, store);
        for (std::size_t i = 0; i < count(); ++i)
          store(i, load_floats(d, source + c + i * hn::Lanes(d)));
      });
    }
  });
}

// Sums in that order, in the order of the columns.
HWY_INLINE void restore_order(DType type, const float* HWY_RESTRICT from, std::size_t columns,
                              float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  for_type(type, [&](auto number) HWY_ATTR {
    for_each_piece(columns, [&](std::size_t c, auto count) HWY_ATTR {
      if constexpr (kByParity<decltype(number), count()>) {
        for (std::size_t i = c; i < c + count() * lanes; i += 2 * lanes)
          hn::StoreInterleaved2(hn::Load(d, from + i), hn::Load(d, from + i + lanes), d, to + i);
      } else {
        std::copy_n(from + c, count() * lanes, to + c);
      }
    });
  });
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
