// Gradient through the softmax of one row of one tile.

#if defined(ISENTROPE_GRADIENT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_TILE_INL_H_
#undef ISENTROPE_GRADIENT_TILE_INL_H_
#else
#define ISENTROPE_GRADIENT_TILE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "isentrope/statistics.h"
#include "src/cpu/steps/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Coefficients of a row for the gradient of its logits. With x = ln p_j, u = x + H:
//
//   dz_j = p_j [ dp_j + base + linear u + quadratic u^2 + collision p_j + d_distance (|i - j| - D)
//                + d_largest if j is the largest key ]
//
// By the chain rule through output, lse, entropy, collision, variance, distance D and
// max_probability P,
//
//   base = d_lse - sum_i p_i dp_i - 2 d_C C - d_V V - d_P P    linear = 2 d_V - d_H
//   quadratic = d_V                                            collision = 2 d_C
struct RowGradient {
  float lse_log2 = 0, entropy = 0;
  float base = 0, linear = 0, quadratic = 0, collision = 0;
  float d_distance = 0, distance = 0;
  std::int64_t own_key = 0;  // i, if d_distance may differ from 0
  float d_largest = 0;
};

// In:   weights[0, columns) logits in log2, gradients[0, columns) dp; [begin, end) seen.
// Out:  p and dz in place, both 0 outside [begin, end) by selection, because masked values may be
// NaN.
// first_key: key of the first column, counted in the call. kMoments: whether linear, quadratic or
// collision may differ from 0; kDistance: whether d_distance may.
template <bool kMoments, bool kDistance>
void gradient_row(const RowGradient& row, std::int64_t first_key, std::size_t begin,
                  std::size_t end, std::size_t columns, float* HWY_RESTRICT weights,
                  float* HWY_RESTRICT gradients) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  // Without a mask, and for most tiles of a causal one, every column is seen.
  const bool all = begin == 0 && end == columns;
  [[maybe_unused]] const auto own_key = static_cast<float>(row.own_key - first_key);
  const auto lse = hn::Set(d, row.lse_log2), base = hn::Set(d, row.base);
  for (std::size_t j = 0; j < columns; j += lanes) {
    // No logit exceeds its row's lse, except by rounding: by hundreds if logits are 1e9.
    auto t = hn::Sub(hn::Load(d, weights + j), lse);
    t = hn::IfThenZeroElse(hn::Gt(t, hn::Zero(d)), t);
    auto p = weight_of(t);
    auto slope = hn::Add(hn::Load(d, gradients + j), base);
    if constexpr (kMoments) {
      const auto u = hn::MulAdd(t, hn::Set(d, static_cast<float>(kLn2)), hn::Set(d, row.entropy));
      const auto by_u = hn::MulAdd(u, hn::Set(d, row.quadratic), hn::Set(d, row.linear));
      slope = hn::MulAdd(u, by_u, slope);
      slope = hn::MulAdd(p, hn::Set(d, row.collision), slope);
    }
    if constexpr (kDistance) {
      // The difference comes first, because both may be a million keys.
      const auto away = hn::Sub(hn::Set(d, own_key), hn::Iota(d, static_cast<float>(j)));
      const auto excess = hn::Sub(hn::Abs(away), hn::Set(d, row.distance));
      slope = hn::MulAdd(excess, hn::Set(d, row.d_distance), slope);
    }
    auto dz = hn::Mul(p, slope);
    if (!all) {
      const auto before_end = hn::FirstN(d, end > j ? end - j : 0);
      const auto seen = hn::AndNot(hn::FirstN(d, begin > j ? begin - j : 0), before_end);
      p = hn::IfThenElseZero(seen, p);
      dz = hn::IfThenElseZero(seen, dz);
    }
    hn::Store(p, d, weights + j);
    hn::Store(dz, d, gradients + j);
  }
}

// Instance of gradient_row() for a set of GradientTerms.
using GradientRow = void (*)(const RowGradient&, std::int64_t, std::size_t, std::size_t,
                             std::size_t, float* HWY_RESTRICT, float* HWY_RESTRICT);
HWY_INLINE GradientRow gradient_row_for(unsigned terms) {
  return terms & kDistances ? gradient_row<true, true>
         : terms & kMoments ? gradient_row<true, false>
                            : gradient_row<false, false>;
}

// Clears the numbers of keys that a dilated row skips; the row sees key `begin` of the tile.
HWY_INLINE void clear_between(std::size_t begin, std::size_t stride, std::size_t columns,
                              float* HWY_RESTRICT numbers) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const std::size_t lanes = hn::Lanes(d), step = HWY_MIN(stride, columns);
  // Distance in keys of each lane from the last key that the row sees.
  HWY_ALIGN std::int32_t first_distance[hn::MaxLanes(Floats())];
  for (std::size_t i = 0; i < lanes; ++i)
    first_distance[i] = static_cast<std::int32_t>((i + step - begin % step) % step);
  auto distance = hn::Load(di, first_distance);
  const auto period = hn::Set(di, static_cast<std::int32_t>(step)),
             advance = hn::Set(di, static_cast<std::int32_t>(lanes % step));
  for (std::size_t j = 0; j < columns; j += lanes) {
    const auto seen = hn::RebindMask(d, hn::Eq(distance, hn::Zero(di)));
    hn::Store(hn::IfThenElseZero(seen, hn::Load(d, numbers + j)), d, numbers + j);
    distance = hn::Add(distance, advance);
    distance = hn::IfThenElse(hn::Lt(distance, period), distance, hn::Sub(distance, period));
  }
}

// Adds the largest key's term, after gradient_row(). `key` counts in the call; -1: none.
HWY_INLINE void add_at_largest_key(const RowGradient& row, std::int64_t key, std::int64_t first_key,
                                   std::size_t begin, std::size_t end,
                                   const float* HWY_RESTRICT weights,
                                   float* HWY_RESTRICT gradients) {
  const std::int64_t j = key - first_key;
  if (j < static_cast<std::int64_t>(begin) || j >= static_cast<std::int64_t>(end)) return;
  gradients[j] += weights[j] * row.d_largest;
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
