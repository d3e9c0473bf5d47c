// exp for softmax weights.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_EXP_INL_H_
#undef ISENTROPE_EXP_INL_H_
#else
#define ISENTROPE_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/tile_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Weights below 2^-126 are 0: relative to the row's maximum, whose weight is 1, they are nothing.
inline constexpr float kLowestExponent = -87.33654f;

// e^t for t <= about 0, with an error of at most 1.1 units in the last place (tests/exp_test.cc
// measures it). Below kLowestExponent, -inf included, both the weight and t become 0, so
// that t may be multiplied by the weight. NaN stays NaN; Highway's own Exp turns it into 0, which drops a
// poisoned key silently.
HWY_INLINE hn::Vec<Floats> weight_of(hn::Vec<Floats>& t) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto vanishes = hn::Lt(t, hn::Set(d, kLowestExponent));
  t = hn::IfThenZeroElse(vanishes, t);
  // Adding 1.5 * 2^23 + 127 rounds t / ln 2 to an integer and leaves its biased exponent in the low bits.
  const auto magic = hn::Set(d, 12582912.0f + 127);
  const auto biased = hn::MulAdd(t, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(biased, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), t);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Minimax in relative error on |r| <= ln 2 / 2: 3e-9, against 1.2e-7 of Taylor's series.
  auto p = hn::MulAdd(r, hn::Set(d, 1.38145988e-3f), hn::Set(d, 8.36871658e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.16683890e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66665211e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.99999940e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // A product keeps NaN; adding n to p's exponent bits would not.
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, biased)));
  return hn::IfThenZeroElse(vanishes, hn::Mul(p, power));
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
