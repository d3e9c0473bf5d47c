// Softmax over the rows of one tile: logits (in bits) in, unnormalised weights and the rows' new states out.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_SOFTMAX_TILE_INL_H_
#undef ISENTROPE_SOFTMAX_TILE_INL_H_
#else
#define ISENTROPE_SOFTMAX_TILE_INL_H_
#endif

#include <cstddef>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/exp-inl.h"
#include "src/cpu/strip_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Replaces logits outside [begin, end) by -inf, by selection: they may be NaN.
HWY_INLINE void hide_outside(float* logits, std::size_t begin, std::size_t end,
                             std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t j = 0; j < columns; j += lanes) {
    if (j >= begin && j + lanes <= end) continue;
    const auto before_end = hn::FirstN(d, end > j ? end - j : 0);
    const auto before_begin = hn::FirstN(d, begin > j ? begin - j : 0);
    const auto admitted = hn::AndNot(before_begin, before_end);
    hn::Store(hn::IfThenElse(admitted, hn::Load(d, logits + j), hidden), d, logits + j);
  }
}

HWY_INLINE hn::Vec<Floats> max_lanes_of(const float* logits, std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto max = hn::Load(d, logits);
  for (std::size_t j = lanes; j < columns; j += lanes) max = hn::Max(max, hn::Load(d, logits + j));
  return max;
}

// Which sums beside s0 a call needs; what nobody asked for is not compiled into its loop.
inline constexpr int kEntropy = 1, kVariance = 2, kCollision = 4;

// Sums over a row's weights w = 2^t, a vector of lanes each.
struct WeightSums {
  hn::Vec<Floats> s0[kRowsAtOnce], s1[kRowsAtOnce], s1_prime[kRowsAtOnce], s2[kRowsAtOnce];
};

// Logits [0, columns) of row i of a group become weights, in place.
template <int kMoments>
HWY_INLINE void weigh_row(float* HWY_RESTRICT logits, std::size_t columns, float origin,
                          std::size_t i, WeightSums& sums) {
  const Floats d;
  const auto from = hn::Set(d, origin);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s1_prime = hn::Zero(d), s2 = hn::Zero(d);
  for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
    auto t = hn::Sub(hn::Load(d, logits + j), from);
    const auto w = weight_of(t);
    hn::Store(w, d, logits + j);
    s0 = hn::Add(s0, w);
    if constexpr (kMoments & kVariance) {
      const auto wt = hn::Mul(w, t);
      s1 = hn::Add(s1, wt);
      s1_prime = hn::MulAdd(wt, t, s1_prime);
    } else if constexpr (kMoments & kEntropy) {
      s1 = hn::MulAdd(w, t, s1);
    }
    if constexpr (kMoments & kCollision) s2 = hn::MulAdd(w, w, s2);
  }
  sums.s0[i] = s0;
  sums.s1[i] = s1;
  sums.s1_prime[i] = s1_prime;
  sums.s2[i] = s2;
}

// In:   tile[r][0, columns) logits, those outside a row's range -inf; columns a multiple of the
// lanes. Out:  weights 2^(z - m) in place, 0 where hidden, with m the largest logit of the row so
// far, and the rows'
//       states, support apart. Returns whether any m grew: keep[r] is then the factor 2^(m_before -
//       m) for the row's value sums.
//
// Two passes over a tile that is in L1: carrying the running maximum instead would put a serial
// max-exp-rescale chain on every vector.
template <int kMoments>
bool softmax_strip(float* HWY_RESTRICT tile, std::size_t stride, std::size_t rows,
                   std::size_t columns, StripState& state, float* HWY_RESTRICT keep) {
  HWY_ALIGN float max[kStateRows], origin[kStateRows];
  for (std::size_t group = 0; group < kStateRows; group += kRowsAtOnce) {
    hn::Vec<Floats> of_row[kRowsAtOnce];
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
      of_row[i] = group + i < rows ? max_lanes_of(tile + (group + i) * stride, columns)
                                   : hn::Set(Floats(), -std::numeric_limits<float>::infinity());
    }
    reduce_four(
        of_row, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); }, max + group);
  }
  const bool moved = raise(max, state, origin, keep);
  for (std::size_t group = 0; group < rows; group += kRowsAtOnce) {
    WeightSums sums;
    const std::size_t count = HWY_MIN(kRowsAtOnce, rows - group);
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
      weigh_row<kMoments>(tile + HWY_MIN(group + i, rows) * stride, i < count ? columns : 0,
                          origin[group + i], i, sums);
    }
    add_sums(sums.s0, state.s0 + group);
    if constexpr (kMoments & (kEntropy | kVariance)) add_sums(sums.s1, state.s1 + group);
    if constexpr (kMoments & kVariance) add_sums(sums.s1_prime, state.s1_prime + group);
    if constexpr (kMoments & kCollision) add_sums(sums.s2, state.s2 + group);
  }
  return moved;
}

using SoftmaxStrip = bool (*)(float* HWY_RESTRICT, std::size_t, std::size_t, std::size_t,
                              StripState&, float* HWY_RESTRICT);

// The loop for a set of moments.
HWY_INLINE SoftmaxStrip softmax_strip_for(int moments) {
  static constexpr SoftmaxStrip kStrips[] = {softmax_strip<0>, softmax_strip<1>, softmax_strip<2>,
                                             softmax_strip<3>, softmax_strip<4>, softmax_strip<5>,
                                             softmax_strip<6>, softmax_strip<7>};
  return kStrips[moments];
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
