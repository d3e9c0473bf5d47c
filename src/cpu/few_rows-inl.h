// Products for a few rows, straight from the caller's keys and values: a decode step reads each of
// them once, so packing would be most of its work (7 GB/s of cache where the memory gives 26).
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_FEW_ROWS_INL_H_
#undef ISENTROPE_FEW_ROWS_INL_H_
#else
#define ISENTROPE_FEW_ROWS_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/load-inl.h"
#include "src/cpu/pack-inl.h"
#include "src/cpu/row_list.h"
#include "src/cpu/strip_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Rows in registers at once; with four keys, or four vectors of columns, 16 sums.
inline constexpr std::size_t kFewRows = 4;

// Four keys, 8 KiB ahead, begin to travel to L2 while others are scored. Keys that lie in a row are
// fetched beyond the list too, which ends with its block.
HWY_INLINE void fetch_ahead(const RowList& keys, bool in_a_row, std::size_t key) {
  const auto bytes = static_cast<std::size_t>(keys.columns * size_of(keys.type));
  for (std::size_t j = key + HWY_MAX(8192 / bytes, 1), end = j + 4; j < end; ++j) {
    if (!in_a_row && j >= keys.rows.size()) return;
    const auto row = in_a_row ? reinterpret_cast<std::uintptr_t>(keys.rows[0]) + j * bytes
                              : reinterpret_cast<std::uintptr_t>(keys.rows[j]);
    for (std::size_t byte = 0; byte < bytes; byte += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(row + byte), 0, 2);
  }
}

// Whether the rows can be read as they are, in whole vectors.
HWY_INLINE bool is_streamable(const RowList& list) {
  return list.columns % static_cast<std::int64_t>(hn::Lanes(Floats())) == 0;
}

// scores[r][j, j + 4) = q_r.k_j of four keys, for kRows rows of packed queries.
template <std::size_t kRows, typename T>
HWY_INLINE void score_four(const float* HWY_RESTRICT queries, std::size_t panel,
                           const T* const keys[4], std::size_t dim, float* HWY_RESTRICT scores,
                           std::size_t stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), width = panel_width();
  hn::Vec<Floats> sums[kRows][4];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (std::size_t j = 0; j < 4; ++j) sums[r][j] = hn::Zero(d);
  }
  for (std::size_t c = 0; c < dim; c += lanes) {
    const float* column = queries + c / width * panel + c % width;
    hn::Vec<Floats> k[4];
#pragma GCC unroll 16
    for (std::size_t j = 0; j < 4; ++j) k[j] = load_floats(d, keys[j] + c);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto q = hn::Load(d, column + r * width);
#pragma GCC unroll 16
      for (std::size_t j = 0; j < 4; ++j) sums[r][j] = hn::MulAdd(q, k[j], sums[r][j]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
    reduce_four(
        sums[r], [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); }, scores + r * stride);
  }
}

// scores[r][j] = q_r.k_j for the rows of `queries`, which pack_rows() left in panels of `panel`
// floats. Writes whole groups of four keys.
//
// Four keys are read side by side, which shares the loads of queries, but is no stream that the
// hardware would fetch ahead of: 8 GB/s, against 16 key after key, and 18 with fetch_ahead(). In
// bf16 it goes from 11 to 14.
HWY_INLINE void score_keys(const float* queries, std::size_t panel, std::size_t rows,
                           const RowList& keys, float* scores, std::size_t stride) {
  const auto dim = static_cast<std::size_t>(keys.columns);
  const std::size_t count = keys.rows.size();
  const bool in_a_row = keys.rows.back() - keys.rows.front() ==
                        static_cast<std::int64_t>(count - 1) * keys.columns * size_of(keys.type);
  for_type(keys.type, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::size_t j = 0; j < count; j += 4) {
      fetch_ahead(keys, in_a_row, j);
      const T* four[4];
      for (std::size_t i = 0; i < 4; ++i) {
        four[i] = reinterpret_cast<const T*>(keys.rows[HWY_MIN(j + i, count - 1)]);
      }
      for (std::size_t r = 0; r < rows; r += kFewRows) {
        const float* of_rows = queries + r * panel_width();
        if (rows - r > 1) {
          score_four<kFewRows>(of_rows, panel, four, dim, scores + r * stride + j, stride);
        } else {
          score_four<1>(of_rows, panel, four, dim, scores + r * stride + j, stride);
        }
      }
    }
  });
}

// sums[r][0, kVectors vectors) += sum_j weights[r][j] values[j], j in [begin, end). A few keys are summed by themselves
// first: one by one, thousands of additions to a large sum would cost two bits.
template <std::size_t kRows, std::size_t kVectors, typename T>
HWY_INLINE void add_columns(const float* HWY_RESTRICT weights, std::size_t stride,
                            const RowList& values, std::size_t begin, std::size_t end,
                            std::size_t column, float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  for (std::size_t j = begin; j < end; ++j) {
    const T* value = reinterpret_cast<const T*>(values.rows[j]) + column;
    hn::Vec<Floats> v[kVectors];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) v[i] = load_floats(d, value + i * lanes);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, weights[r * stride + j]);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, v[i], sum[r][i]);
    }
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

// The same of one row, or two.
template <std::size_t kVectors, typename T>
HWY_INLINE void add_columns(bool two, const float* weights, std::size_t stride,
                            const RowList& values, std::size_t begin, std::size_t end,
                            std::size_t column, float* sums, std::size_t sums_stride) {
  if (two) {
    add_columns<2, kVectors, T>(weights, stride, values, begin, end, column, sums, sums_stride);
  } else {
    add_columns<1, kVectors, T>(weights, stride, values, begin, end, column, sums, sums_stride);
  }
}

// sums[r] += sum_j weights[r][j] values[j], j in [first, last).
HWY_INLINE void add_values(const float* weights, std::size_t stride, std::size_t rows,
                           const RowList& values, std::size_t first, std::size_t last, float* sums,
                           std::size_t sums_stride) {
  constexpr std::size_t kKeys = 16;  // summed by themselves, and read from L1 by the rows after the first two
  constexpr std::size_t kWide =
      kStripRows > 6 ? 8 : 4;  // vectors; two rows of them stay in registers
  const std::size_t lanes = hn::Lanes(Floats());
  const auto columns = static_cast<std::size_t>(values.columns);
  for_type(values.type, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::size_t j = first; j < last; j += kKeys) {
      const std::size_t end = HWY_MIN(last, j + kKeys);
      for (std::size_t r = 0; r < rows; r += 2) {
        const float* from = weights + r * stride;
        const bool two = rows - r > 1;
        for (std::size_t c = 0; c < columns;) {
          float* to = sums + r * sums_stride + c;
          const std::size_t left = (columns - c) / lanes, vectors = left >= kWide ? kWide
                                                                    : left >= 4   ? 4
                                                                                  : 1;
          if (vectors == kWide) {
            add_columns<kWide, T>(two, from, stride, values, j, end, c, to, sums_stride);
          } else if (vectors == 4) {
            add_columns<4, T>(two, from, stride, values, j, end, c, to, sums_stride);
          } else {
            add_columns<1, T>(two, from, stride, values, j, end, c, to, sums_stride);
          }
          c += vectors * lanes;
        }
      }
    }
  });
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
