// Streams keys and values of a decode step: groups of a few rows, in order and in place.

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

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/load-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Keys in a group. Values are summed by group, and all rows but the first read them from L1.
inline constexpr std::size_t kFewKeys = 16;

// Vectors of columns processed together; remaining vectors are processed one by one.
inline constexpr std::size_t kPiece = 4;

template <typename T>
inline constexpr bool kAreCodes = std::is_same_v<T, std::int8_t>;

// A few evenly spaced rows of a block. Codes of 8 bits are numbers divided by the scale of their
// group of columns. Rows of other types are one group.
template <typename T>
struct FewRows {
  Strided<T> rows;
  std::size_t groups, group;         // groups of a row, and columns of a group
  const float* const* first_scales;  // for each row
  std::ptrdiff_t scale_stride;       // from group to group
  std::ptrdiff_t ahead;              // bytes from a row to the one that is prefetched meanwhile

  HWY_INLINE const T* row(std::size_t r) const {
    return rows.data + static_cast<std::ptrdiff_t>(r) * rows.stride;
  }
  HWY_INLINE const float* scales(std::size_t r) const {
    return kAreCodes<T> ? first_scales[r] : nullptr;
  }
};

// Dequantizes numbers of a group.
template <typename T>
HWY_INLINE hn::Vec<Floats> times([[maybe_unused]] const float* scale, hn::Vec<Floats> numbers) {
  if constexpr (kAreCodes<T>) return hn::Mul(hn::Set(Floats(), *scale), numbers);
  return numbers;
}

// Returns whether rows are codes whose vectors each have one scale.
HWY_INLINE bool are_whole_codes(const Operand& rows) {
  return rows.are_codes() && rows.group() % hn::Lanes(Floats()) == 0;
}

// Calls visit(T()) with the type that rows are read as.
template <typename Visit>
HWY_INLINE void for_type_of(const Operand& rows, const Visit& visit) {
  rows.are_codes() ? visit(std::int8_t()) : for_type(rows.type(), visit);
}

// Distance of prefetching in rows: whole groups, which are contiguous within a page.
template <typename T>
HWY_INLINE std::size_t rows_ahead(std::size_t columns) {
  constexpr std::size_t kBytes = 4096;
  const std::size_t few_bytes = HWY_MAX(kFewKeys * columns * sizeof(T), std::size_t{1});
  return round_up(kBytes, few_bytes) / few_bytes * kFewKeys;
}

// Returns rows begin ... end - 1 in place or, unless evenly spaced, copied to `memory`. One core
// reads 24 GB/s with computed addresses and 15 with addresses from a list.
template <typename T>
HWY_INLINE FewRows<T> few_rows(const Operand& from, std::size_t begin, std::size_t end,
                               std::size_t rows_ahead, float* HWY_RESTRICT memory) {
  const std::size_t columns = from.columns();
  FewRows<T> rows_read{{}, 1, columns, nullptr, 0, 0};
  if constexpr (kAreCodes<T>) {
    rows_read.group = from.group();
    rows_read.groups = columns / rows_read.group;
    rows_read.first_scales = from.scales_from(begin);
    rows_read.scale_stride = from.scale_stride();
  }
  if (const auto rows = from.evenly<T>(begin, end)) {
    rows_read.rows = *rows;
    rows_read.ahead = from.distance(begin, rows_ahead);
    return rows_read;
  }
  // The copy is in L1 and read at the same speed, so that one loop serves both.
  T* to = reinterpret_cast<T*>(memory);
  rows_read.rows = {to, static_cast<std::ptrdiff_t>(columns)};
  for (std::size_t r = begin; r < end; ++r, to += columns)
    std::memcpy(to, from.row(r), columns * sizeof(T));
  return rows_read;
}

// Prefetches at `at + ahead`: the hardware prefetcher does not follow several interleaved rows.
HWY_INLINE void fetch_ahead(const void* at, std::ptrdiff_t ahead, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const auto from = reinterpret_cast<std::uintptr_t>(at) + static_cast<std::uintptr_t>(ahead);
#pragma GCC unroll 4
  for (std::size_t byte = 0; byte < bytes; byte += kLine)
    // NOLINTNEXTLINE(*-no-int-to-ptr): it may be past the array, where a pointer may not
    hwy::Prefetch(reinterpret_cast<const std::byte*>(from + byte));
}

// Calls visit(first column, std::integral_constant of vectors) for pieces, then single vectors.
template <typename Visit>
HWY_INLINE void for_each_piece(std::size_t columns, const Visit& visit) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t c = 0;
  for (; c + kPiece * lanes <= columns; c += kPiece * lanes)
    visit(c, std::integral_constant<std::size_t, kPiece>());
  for (; c < columns; c += lanes) visit(c, std::integral_constant<std::size_t, 1>());
}

// Whether two vectors hold the even and the odd columns. A shift and an And widen two bf16 numbers;
// in the order of columns it takes a permutation and a shift.
template <typename T, std::size_t kVectors>
inline constexpr bool kByParity =
    (std::is_same_v<T, BFloat16>) && (kVectors % 2 == 0) && (HWY_TARGET != HWY_SCALAR) &&
    (std::endian::native == std::endian::little);

// Returns vector i of kVectors from `from` on.
template <std::size_t kVectors, typename T>
HWY_INLINE hn::Vec<Floats> vector_of(const T* from, std::size_t i) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  if constexpr (kByParity<T, kVectors>) {
    const hn::RebindToUnsigned<Floats> bits;
    const auto two =
        hn::LoadU(bits, reinterpret_cast<const std::uint32_t*>(from + i / 2 * 2 * lanes));
    return hn::BitCast(
        d, i % 2 == 0 ? hn::ShiftLeft<16>(two) : hn::And(two, hn::Set(bits, 0xffff0000u)));
  } else {
    return load_floats(d, from + i * lanes);
  }
}

// Same in the order of rows of type `order`: the rows' own, or that of keys under an f32 query.
template <std::size_t kVectors, typename T>
HWY_INLINE hn::Vec<Floats> vector_in_order(DType order, const T* from, std::size_t i) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  if (order == kDTypeOf<T>) return vector_of<kVectors>(from, i);
  if constexpr (std::is_same_v<T, float> && kByParity<BFloat16, kVectors>) {
    if (order == DType::bf16) {
      hn::Vec<Floats> even, odd;
      hn::LoadInterleaved2(d, from + i / 2 * 2 * lanes, even, odd);
      return i % 2 == 0 ? even : odd;
    }
  }
  return load_floats(d, from + i * lanes);
}

// Computes to[row][...] = factors[row] from[row][...], rows `stride` floats apart. The order is
// that in which vector_of() reads rows of type `order`.
HWY_INLINE void scale_rows(const Operand& from, const float* factors, DType order,
                           std::size_t stride, float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  for_type(from.type(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::size_t row = 0; row < from.count(); ++row) {
      const auto by = hn::Set(d, factors[row]);
      const auto* source = reinterpret_cast<const T*>(from.row(row));
      for_each_piece(from.columns(), [&](std::size_t c, auto count) HWY_ATTR {
        for (std::size_t i = 0; i < count(); ++i) {
          const auto numbers = vector_in_order<count()>(order, source + c, i);
          hn::Store(hn::Mul(by, numbers), d, to + row * stride + c + i * lanes);
        }
      });
    }
  });
}

// Reorders sums from that order to the order of columns.
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
