// Powers of two for softmax weights, and a maximum that keeps NaN on every instruction set.

#if defined(ISENTROPE_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_EXP_INL_H_
#undef ISENTROPE_EXP_INL_H_
#else
#define ISENTROPE_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Returns the larger of `least`, which is not NaN, and x; NaN if x is NaN. hn::Max leaves NaN open:
// x86 returns the second operand, NEON and portable targets the other number. Maxima over keys may
// use it, because a NaN logit makes the row's weights NaN anyway.
template <typename V>
HWY_INLINE V max_or_nan(V least, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(least, x);
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}

// Kernels measure logits in log2, as multiples of ln 2. e^z is then 2^t, whose range reduction is
// one subtraction. In nats it takes three of 15 multiplications, on the units that products use. A
// vector of weights took 21 cycles in nats, and takes 15.
inline constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

// Below this a weight is 0: it is negligible against the row's maximum, whose weight is 1.
inline constexpr float kMinLog2 = -127;

// Returns 2^t for t <= about 0, with an error of at most 1.1 units in the last place
// (tests/src/cpu/exp_test.cc measures it). If the weight is 0, t becomes kMinLog2, so that t times
// the weight is 0. NaN stays NaN; Highway's Exp returns 0 for it, which would hide a NaN key.
HWY_INLINE hn::Vec<Floats> weight_of(hn::Vec<Floats>& t) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  t = max_or_nan(hn::Set(d, kMinLog2), t);
  // Adding 1.5 * 2^23 + 127 rounds t to an integer n with its biased exponent in the low bits.
  const auto magic = hn::Set(d, 12582912.0f + 127);
  const auto biased = hn::Add(t, magic);
  const auto r = hn::Sub(t, hn::Sub(biased, magic));
  // Minimax in relative error on |r| <= 1/2: 4e-9, against 5e-9 of rounding the coefficients.
  auto p = hn::MulAdd(r, hn::Set(d, 1.53785702e-4f), hn::Set(d, 1.33889902e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.61825345e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.55036403e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.40226507e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.93147182e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // The power of -127 is 0. A product keeps NaN; adding n to p's exponent bits would not.
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, biased))));
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
