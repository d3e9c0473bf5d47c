// Products for a few rows with keys and values in place: each is read once, so packing would be
// most of the work (7 GB/s of cache, not 26 of memory). Numbers become floats once for four rows.

#if defined(ISENTROPE_DECODE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_DECODE_TILE_INL_H_
#undef ISENTROPE_DECODE_TILE_INL_H_
#else
#define ISENTROPE_DECODE_TILE_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/row_stream-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Rows that share loaded keys: as many as registers hold with four vectors of sums each.
inline constexpr std::size_t kSharingRows = kRegisterRows > 6 ? 4 : 2;

// Calls visit(row, std::integral_constant of rows) for groups of rows that share loads.
template <typename Visit>
HWY_INLINE void for_sharing_rows(std::size_t rows, const Visit& visit) {
  for (std::size_t r = 0; r < rows; r += kSharingRows) {
    const std::size_t left = rows - r;
    if constexpr (kSharingRows > 2) {
      if (left >= 4) {
        visit(r, std::integral_constant<std::size_t, 4>());
        continue;
      }
      if (left == 3) {
        visit(r, std::integral_constant<std::size_t, 3>());
        continue;
      }
    }
    left >= 2 ? visit(r, std::integral_constant<std::size_t, 2>())
              : visit(r, std::integral_constant<std::size_t, 1>());
  }
}

// Four keys of a few. The last group repeats its last key for missing ones: their scores may be
// anything, but nothing past the end is read.
template <typename T>
struct FourKeys {
  const T* rows[4];
  const float* scales[4];  // of the first group, then of later ones
  std::ptrdiff_t ahead;

  HWY_INLINE FourKeys(const FewRows<T>& keys, std::size_t first, std::size_t count)
      : ahead(keys.ahead) {
    for (std::size_t key = 0; key < 4; ++key) {
      const std::size_t r = HWY_MIN(first + key, count - 1);
      rows[key] = keys.row(r);
      scales[key] = keys.scales(r);
    }
  }
};

// Computes sums[r][i] += q_r.k_i of four keys over kVectors vectors from column `c` on.
template <std::size_t kVectors, std::size_t kRows, typename T>
HWY_INLINE void add_products(const float* HWY_RESTRICT queries, std::size_t queries_stride,
                             const FourKeys<T>& keys, std::size_t c,
                             hn::Vec<Floats> (&sums)[kRows][4]) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
#pragma GCC unroll 4
  for (std::size_t key = 0; key < 4; ++key)
    fetch_ahead(keys.rows[key] + c, keys.ahead, kVectors * lanes * sizeof(T));
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kVectors; ++i) {
    hn::Vec<Floats> k[4];
#pragma GCC unroll 4
    for (std::size_t key = 0; key < 4; ++key)
      k[key] = times<T>(keys.scales[key], vector_of<kVectors>(keys.rows[key] + c, i));
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto q = hn::Load(d, queries + r * queries_stride + c + i * lanes);
#pragma GCC unroll 4
      for (std::size_t key = 0; key < 4; ++key) sums[r][key] = hn::MulAdd(q, k[key], sums[r][key]);
    }
  }
}

// Computes scores[r][i] = q_r.k_i of four keys of a few.
template <std::size_t kRows, typename T>
HWY_INLINE void score_four(const float* HWY_RESTRICT queries, std::size_t queries_stride,
                           const FewRows<T>& key_rows, FourKeys<T> keys, float* HWY_RESTRICT scores,
                           std::size_t stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kRows][4];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t key = 0; key < 4; ++key) sums[r][key] = hn::Zero(d);
  }
  for (std::size_t g = 0, c = 0; g < key_rows.groups; ++g) {
    const std::size_t end = c + key_rows.group;
    for (; c + kPiece * lanes <= end; c += kPiece * lanes)
      add_products<kPiece>(queries, queries_stride, keys, c, sums);
    for (; c < end; c += lanes) add_products<1>(queries, queries_stride, keys, c, sums);
    for (const float*& scales : keys.scales) scales += key_rows.scale_stride;
  }
  const auto add = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) reduce_four(sums[r], add, scores + r * stride);
}

// Computes scores[r][j] = q_r.k_j. Writes whole groups of four keys. `memory` is for few_rows().
HWY_INLINE void score_keys(const float* queries, std::size_t queries_stride, std::size_t rows,
                           const Operand& keys, float* memory, float* scores, std::size_t stride) {
  const std::size_t keys_count = keys.count();
  for_type_of(keys, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const std::size_t ahead = rows_ahead<T>(keys.columns());
    for (std::size_t j = 0; j < keys_count; j += kFewKeys) {
      const std::size_t count = HWY_MIN(keys_count - j, kFewKeys);
      const FewRows<T> key_rows = few_rows<T>(keys, j, j + count, ahead, memory);
      for (std::size_t i = 0; i < count; i += 4) {
        const FourKeys<T> key_group(key_rows, i, count);
        for_sharing_rows(rows, [&](std::size_t row, auto together) HWY_ATTR {
          score_four<together()>(queries + row * queries_stride, queries_stride, key_rows,
                                 key_group, scores + row * stride + j + i, stride);
        });
      }
    }
  });
}

// Computes sums[r][0, kVectors vectors) += sum_j weights[r][j] values[j] for `count` keys and
// columns from `c` on, in the order of vector_of(). A few keys are summed separately first, because
// thousands of additions to a large sum would cost two bits.
template <std::size_t kRows, std::size_t kVectors, typename T>
HWY_INLINE void add_piece(const float* HWY_RESTRICT weights, std::size_t stride,
                          const FewRows<T>& values, std::size_t count, std::size_t c,
                          float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sum[kRows][kVectors];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  std::ptrdiff_t scale[kVectors];
  for (std::size_t i = 0; i < kVectors; ++i)
    scale[i] = values.groups == 1 ? 0
                                  : static_cast<std::ptrdiff_t>((c + i * lanes) / values.group) *
                                        values.scale_stride;
  const T* value = values.rows.data + c;
  for (std::size_t j = 0; j < count; ++j, value += values.rows.stride) {
    const float* scales = values.scales(j);
    fetch_ahead(value, values.ahead, kVectors * lanes * sizeof(T));
    hn::Vec<Floats> v[kVectors];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i)
      v[i] = times<T>(scales + scale[i], vector_of<kVectors>(value, i));
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, weights[r * stride + j]);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, v[i], sum[r][i]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) {
      float* to = sums + r * sums_stride + c + i * lanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[r][i]), d, to);
    }
  }
}

// Computes sums[r] += sum_j weights[r][j] values[j], j in [first, last); `memory` as for
// score_keys().
HWY_INLINE void add_values(const float* weights, std::size_t stride, std::size_t rows,
                           const Operand& values, std::size_t first, std::size_t last,
                           float* memory, float* sums, std::size_t sums_stride) {
  const std::size_t columns = values.columns();
  for_type_of(values, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const std::size_t ahead = rows_ahead<T>(columns);
    for (std::size_t j = first; j < last; j += kFewKeys) {
      const std::size_t count = HWY_MIN(last - j, kFewKeys);
      const FewRows<T> value_rows = few_rows<T>(values, j, j + count, ahead, memory);
      for_sharing_rows(rows, [&](std::size_t row, auto together) HWY_ATTR {
        for_each_piece(columns, [&](std::size_t c, auto vectors) HWY_ATTR {
          add_piece<together(), vectors()>(weights + row * stride + j, stride, value_rows, count, c,
                                           sums + row * sums_stride, sums_stride);
        });
      });
    }
  });
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
