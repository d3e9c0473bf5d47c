// Softmax over one row of one tile: logits in, unnormalised weights and the row's new state out.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_SOFTMAX_TILE_INL_H_
#undef ISENTROPE_SOFTMAX_TILE_INL_H_
#else
#define ISENTROPE_SOFTMAX_TILE_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <limits>

#include "hwy/highway.h"
#include "isentrope/row_state.h"
#include "src/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Replaces logits outside [begin, end) by -inf, by selection: they may be NaN.
HWY_INLINE void hide_outside(float* logits, std::size_t begin, std::size_t end, std::size_t columns) {
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

HWY_INLINE float max_of(const float* logits, std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto max = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t j = 0; j < columns; j += lanes) max = hn::Max(max, hn::Load(d, logits + j));
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// Which sums beside s0 a call needs; what nobody asked for is not compiled into its loop.
inline constexpr int kEntropy = 1, kVariance = 2, kCollision = 4;

// In:   logits[0, columns), those outside the row's range -inf; columns a multiple of the lanes; how many
//       of them the row admits.
// Out:  weights e^(z - m) in place, 0 where hidden, with m the largest logit of the row so far, and the
//       row's state. Returns the factor e^(m_before - m) for the row's value accumulator.
//
// Two passes over a tile that is in L1: carrying the running maximum instead would put a serial
// max-exp-rescale chain on every vector.
template <int kMoments>
float softmax_row(float* HWY_RESTRICT logits, std::size_t columns, std::int64_t support,
                             RowState& state) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const float before = static_cast<float>(state.max);
  const float max = HWY_MAX(before, max_of(logits, columns));
  // While every logit is -inf, any finite origin gives them the weight 0; -inf - -inf would be NaN.
  const bool nothing = max == -std::numeric_limits<float>::infinity();
  const auto origin = hn::Set(d, nothing ? 0 : max);

  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s1_prime = hn::Zero(d), s2 = hn::Zero(d);
  for (std::size_t j = 0; j < columns; j += lanes) {
    auto t = hn::Sub(hn::Load(d, logits + j), origin);
    const auto w = weight_of(t);
    hn::Store(w, d, logits + j);
    s0 = hn::Add(s0, w);
    if constexpr (kMoments & (kEntropy | kVariance)) {
      const auto wt = hn::Mul(w, t);
      s1 = hn::Add(s1, wt);
      if constexpr (kMoments & kVariance) s1_prime = hn::MulAdd(wt, t, s1_prime);
    }
    if constexpr (kMoments & kCollision) s2 = hn::MulAdd(w, w, s2);
  }
  const auto sum = [&](auto v) HWY_ATTR { return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, v))); };
  const auto moment = [&](int which, auto v) HWY_ATTR { return kMoments & which ? sum(v) : 0.0; };
  state = merge(state, {max, sum(s0), moment(kEntropy | kVariance, s1), moment(kVariance, s1_prime),
                        moment(kCollision, s2), support});
  return before == max ? 1 : std::exp(before - max);
}

using SoftmaxRow = float (*)(float* HWY_RESTRICT, std::size_t, std::int64_t, RowState&);

// The loop for a set of moments.
HWY_INLINE SoftmaxRow softmax_row_for(int moments) {
  static constexpr SoftmaxRow kRows[] = {softmax_row<0>, softmax_row<1>, softmax_row<2>, softmax_row<3>,
                                         softmax_row<4>, softmax_row<5>, softmax_row<6>, softmax_row<7>};
  return kRows[moments];
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
