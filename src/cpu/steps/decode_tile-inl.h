// Products for a few rows with the caller's keys and values where they lie: a decode step reads
// each of them once, so packing would be most of its work (7 GB/s of cache where the memory gives
// 26).
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_DECODE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_DECODE_TILE_INL_H_
#undef ISENTROPE_DECODE_TILE_INL_H_
#else
#define ISENTROPE_DECODE_TILE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/row_stream-inl.h"
#include "src/cpu/steps/decode_codes-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// scores[r][j] += q_r.k_j over kVectors vectors of columns, which stay in registers; the first
// columns replace what is there. Writes whole groups of four keys. Key after key: side by side they
// are no stream that the hardware would fetch ahead of, 13 GB/s and not 24.
template <std::size_t kRows, std::size_t kVectors, typename T>
HWY_INLINE void score_columns(const float* HWY_RESTRICT queries, std::size_t queries_stride,
                              const Strided<T>& keys, std::size_t count, bool first,
                              float* HWY_RESTRICT scores, std::size_t stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> q[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i)
      q[r][i] = hn::Load(d, queries + r * queries_stride + i * lanes);
  }
  for (std::size_t j = 0; j < count; j += 4) {
    hn::Vec<Floats> sums[kRows][4];
#pragma GCC unroll 16
    for (std::size_t key = 0; key < 4; ++key) {
      // The last group takes its last key again for those that are not there: behind `count` the
      // scores may hold anything, but there is nothing to read.
      const T* row =
          keys.data + static_cast<std::ptrdiff_t>(HWY_MIN(j + key, count - 1)) * keys.stride;
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kRows; ++r) sums[r][key] = hn::Zero(d);
      for_each_vector<kVectors>(row, [&](std::size_t i, auto k) HWY_ATTR {
#pragma GCC unroll 16
        for (std::size_t r = 0; r < kRows; ++r) sums[r][key] = hn::MulAdd(q[r][i], k, sums[r][key]);
      });
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto add = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
      float* to = scores + r * stride + j;
      if (first) {
        reduce_four(sums[r], add, to);
      } else {
        HWY_ALIGN float more[4];
        reduce_four(sums[r], add, more);
        for (std::size_t key = 0; key < 4; ++key) to[key] += more[key];
      }
    }
  }
}

// scores[r][j] = q_r.k_j. Writes whole groups of four keys. `memory` has room for kFewKeys keys.
// Two rows share what is read of a key; more would need more registers for queries than there are.
// A third row reads it again, from L1.
HWY_INLINE void score_keys(const float* queries, std::size_t queries_stride, std::size_t rows,
                           const Operand& keys, float* memory, float* scores, std::size_t stride) {
  if (are_whole_codes(keys))
    return score_codes(queries, queries_stride, rows, keys, scores, stride);
  const std::size_t keys_count = keys.count();
  for_type(keys.type(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::size_t j = 0; j < keys_count; j += kFewKeys) {
      const std::size_t count = HWY_MIN(keys_count - j, kFewKeys);
      const Strided<T> even = few_rows<T>(keys, j, j + count, memory);
      for (std::size_t r = 0; r < rows; r += 2) {
        for_each_piece(keys.columns(), [&](std::size_t c, auto vectors) HWY_ATTR {
          const float* of_rows = queries + r * queries_stride + c;
          const Strided<T> piece{even.data + c, even.stride};
          float* to = scores + r * stride + j;
          rows - r > 1 ? score_columns<2, vectors()>(of_rows, queries_stride, piece, count, c == 0,
                                                     to, stride)
                       : score_columns<1, vectors()>(of_rows, queries_stride, piece, count, c == 0,
                                                     to, stride);
        });
      }
    }
  });
}

// sums[r][0, kVectors vectors) += sum_j weights[r][j] values[j] of `count` keys, in the order of
// for_each_vector(). They are summed by themselves first: one by one, thousands of additions to a
// large sum would cost two bits.
template <std::size_t kRows, std::size_t kVectors, typename T>
HWY_INLINE void add_columns(const float* HWY_RESTRICT weights, std::size_t stride,
                            const Strided<T>& values, std::size_t count, float* HWY_RESTRICT sums,
                            std::size_t sums_stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  const T* value = values.data;
  for (std::size_t j = 0; j < count; ++j, value += values.stride) {
    hn::Vec<Floats> weight[kRows];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) weight[r] = hn::Set(d, weights[r * stride + j]);
    for_each_vector<kVectors>(value, [&](std::size_t i, auto v) HWY_ATTR {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kRows; ++r) sum[r][i] = hn::MulAdd(weight[r], v, sum[r][i]);
    });
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) {
      float* to = sums + r * sums_stride + i * lanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[r][i]), d, to);
    }
  }
}

// sums[r] += sum_j weights[r][j] values[j], j in [first, last). `memory` has room for kFewKeys.
// As score_keys(), in groups of as many keys: their values are still in L1 for the third row.
HWY_INLINE void add_values(const float* weights, std::size_t stride, std::size_t rows,
                           const Operand& values, std::size_t first, std::size_t last,
                           float* memory, float* sums, std::size_t sums_stride) {
  if (are_whole_codes(values))
    return add_codes(weights, stride, rows, values, first, last, sums, sums_stride);
  for_type(values.type(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::size_t j = first; j < last; j += kFewKeys) {
      const std::size_t count = HWY_MIN(last - j, kFewKeys);
      const Strided<T> even = few_rows<T>(values, j, j + count, memory);
      for (std::size_t r = 0; r < rows; r += 2) {
        for_each_piece(values.columns(), [&](std::size_t c, auto vectors) HWY_ATTR {
          const float* from = weights + r * stride + j;
          const Strided<T> piece{even.data + c, even.stride};
          float* to = sums + r * sums_stride + c;
          rows - r > 1 ? add_columns<2, vectors()>(from, stride, piece, count, to, sums_stride)
                       : add_columns<1, vectors()>(from, stride, piece, count, to, sums_stride);
        });
      }
    }
  });
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
