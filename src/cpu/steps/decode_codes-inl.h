// Products for a few rows with keys and values in 8 bits: a decode step's, like those of
// decode_tile-inl.h, whose bits they give.
//
// Codes become floats in registers, once for four rows: 0.075 ms for 32 heads over 8 of 512 keys,
// d = 128, where floats that wait in L1 and are read once for each two rows take 0.097.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_DECODE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_DECODE_CODES_INL_H_
#undef ISENTROPE_DECODE_CODES_INL_H_
#else
#define ISENTROPE_DECODE_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/row_stream-inl.h"
#include "src/cpu/product/widen_codes-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Query rows that share what becomes of a code: as many as four vectors of sums each leave
// registers for.
inline constexpr std::size_t kRowsOfCodes = kRegisterRows > 6 ? 4 : 2;

// Whether a vector of codes has one scale.
HWY_INLINE bool are_whole_codes(const Operand& rows) {
  return rows.are_codes() && rows.group() % hn::Lanes(Floats()) == 0;
}

HWY_INLINE const std::int8_t* codes_of(const Operand& rows, std::size_t r) {
  return reinterpret_cast<const std::int8_t*>(rows.row(r));
}

// What lies some 8 KiB behind a row begins to travel to the cache, the next block's first rows too:
// several rows read side by side are no stream that the hardware would fetch ahead of. Where rows
// do not go on so, at a page's end, that is in vain.
class FetchAhead {
 public:
  HWY_INLINE explicit FetchAhead(const Operand& rows) : columns_(rows.columns()) {
    const std::ptrdiff_t step = rows.count() > 1 ? rows.row(1) - rows.row(0) : 0;
    bytes_ = static_cast<std::ptrdiff_t>(8192 / HWY_MAX(columns_, std::size_t{1})) * step;
  }
  HWY_INLINE void behind(const std::int8_t* row) const {
    constexpr std::size_t kLine = 64;
    const auto at = reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(bytes_);
    for (std::size_t c = 0; c < columns_; c += kLine)
      hwy::Prefetch(reinterpret_cast<const std::int8_t*>(at + c));
  }

 private:
  std::size_t columns_;
  std::ptrdiff_t bytes_;
};

// visit(row, std::integral_constant of rows) for as many at a time as share codes.
template <typename Visit>
HWY_INLINE void for_rows_of_codes(std::size_t rows, const Visit& visit) {
  for (std::size_t r = 0; r < rows; r += kRowsOfCodes) {
    const std::size_t left = rows - r;
    if constexpr (kRowsOfCodes > 2) {
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

// scores[r][i] = q_r.k of key of[i] over columns [begin, end), whole vectors of them; pieces after
// the first one are added.
template <std::size_t kRows>
HWY_INLINE void score_piece(const float* HWY_RESTRICT queries, std::size_t queries_stride,
                            const Operand& keys, const std::size_t (&of)[4], std::size_t begin,
                            std::size_t end, float* HWY_RESTRICT scores, std::size_t stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), per_scale = keys.group();
  hn::Vec<Floats> sums[kRows][4];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t key = 0; key < 4; ++key) sums[r][key] = hn::Zero(d);
  }
  const std::int8_t* const codes[] = {codes_of(keys, of[0]), codes_of(keys, of[1]),
                                      codes_of(keys, of[2]), codes_of(keys, of[3])};
  std::size_t group = begin / per_scale;
  for (std::size_t c = begin; c < end; ++group) {
    hn::Vec<Floats> scale[4];
#pragma GCC unroll 4
    for (std::size_t key = 0; key < 4; ++key) scale[key] = hn::Set(d, keys.scale(of[key], group));
    for (const std::size_t last = HWY_MIN(end, (group + 1) * per_scale); c < last; c += lanes) {
      hn::Vec<Floats> k[4];
#pragma GCC unroll 4
      for (std::size_t key = 0; key < 4; ++key)
        k[key] = hn::Mul(scale[key], load_codes(d, codes[key] + c));
#pragma GCC unroll 4
      for (std::size_t r = 0; r < kRows; ++r) {
        const auto q = hn::Load(d, queries + r * queries_stride + c);
#pragma GCC unroll 4
        for (std::size_t key = 0; key < 4; ++key)
          sums[r][key] = hn::MulAdd(q, k[key], sums[r][key]);
      }
    }
  }
  const auto add = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
    float* to = scores + r * stride;
    if (begin == 0) {
      reduce_four(sums[r], add, to);
      continue;
    }
    HWY_ALIGN float more[4];
    reduce_four(sums[r], add, more);
    for (std::size_t key = 0; key < 4; ++key) to[key] += more[key];
  }
}

// scores[r][j] = q_r.k_j. Writes whole groups of four keys: behind the last key it stands again,
// for there is nothing to read.
HWY_INLINE void score_codes(const float* queries, std::size_t queries_stride, std::size_t rows,
                            const Operand& keys, float* scores, std::size_t stride) {
  const std::size_t lanes = hn::Lanes(Floats()), last = keys.count() - 1;
  const FetchAhead fetch(keys);
  for (std::size_t j = 0; j < keys.count(); j += 4) {
    const std::size_t of[4] = {j, HWY_MIN(j + 1, last), HWY_MIN(j + 2, last), HWY_MIN(j + 3, last)};
    for (const std::size_t key : of) fetch.behind(codes_of(keys, key));
    for_rows_of_codes(rows, [&](std::size_t row, auto count) HWY_ATTR {
      for_each_piece(keys.columns(), [&](std::size_t c, auto vectors) HWY_ATTR {
        score_piece<count()>(queries + row * queries_stride, queries_stride, keys, of, c,
                             c + vectors() * lanes, scores + row * stride + j, stride);
      });
    });
  }
}

// sums[r][0, kVectors vectors) += sum_j weights[r][j] values[j], j in [first, last), of columns `c`
// on.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void add_code_columns(const float* HWY_RESTRICT weights, std::size_t stride,
                                 const Operand& values, std::size_t first, std::size_t last,
                                 std::size_t c, float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sum[kRows][kVectors];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  const std::size_t per_scale = values.group();
  std::size_t group[kVectors];
  for (std::size_t i = 0; i < kVectors; ++i) group[i] = (c + i * lanes) / per_scale;
  for (std::size_t j = first; j < last; ++j) {
    const std::int8_t* const codes = codes_of(values, j) + c;
    hn::Vec<Floats> v[kVectors];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i)
      v[i] = hn::Mul(hn::Set(d, values.scale(j, group[i])), load_codes(d, codes + i * lanes));
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
      float* to = sums + r * sums_stride + i * lanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[r][i]), d, to);
    }
  }
}

// sums[r] += sum_j weights[r][j] values[j], j in [first, last), few keys at a time: these are
// summed by themselves first.
HWY_INLINE void add_codes(const float* weights, std::size_t stride, std::size_t rows,
                          const Operand& values, std::size_t first, std::size_t last, float* sums,
                          std::size_t sums_stride) {
  const std::size_t lanes = hn::Lanes(Floats()), columns = values.columns();
  const FetchAhead fetch(values);
  for (std::size_t j = first; j < last; j += kFewKeys) {
    const std::size_t end = HWY_MIN(last, j + kFewKeys);
    for (std::size_t row = j; row < end; ++row) fetch.behind(codes_of(values, row));
    for_rows_of_codes(rows, [&](std::size_t row, auto count) HWY_ATTR {
      const float* from = weights + row * stride;
      float* to = sums + row * sums_stride;
      std::size_t c = 0;
      for (; c + 4 * lanes <= columns; c += 4 * lanes)
        add_code_columns<count(), 4>(from, stride, values, j, end, c, to + c, sums_stride);
      for (; c < columns; c += lanes)
        add_code_columns<count(), 1>(from, stride, values, j, end, c, to + c, sums_stride);
    });
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
