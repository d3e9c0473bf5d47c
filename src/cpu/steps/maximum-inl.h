// Maximum that keeps NaN on every instruction set.

#if defined(ISENTROPE_MAXIMUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_MAXIMUM_INL_H_
#undef ISENTROPE_MAXIMUM_INL_H_
#else
#define ISENTROPE_MAXIMUM_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
