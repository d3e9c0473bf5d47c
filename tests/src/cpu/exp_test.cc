// The kernels' power of two and maximum on every instruction set: error, edges, NaN.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/src/cpu/exp_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/steps/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

float weight(float x) {
  const Floats d;
  auto t = hn::Set(d, x);
  return hn::GetLane(weight_of(t));
}

float t_after(float x) {
  const Floats d;
  auto t = hn::Set(d, x);
  weight_of(t);
  return hn::GetLane(t);
}

float larger_or_nan(float least, float x) {
  const Floats d;
  return hn::GetLane(max_or_nan(hn::Set(d, least), hn::Set(d, x)));
}

// Returns the largest error, in units in the last place, over every `stride`-th float of [kMinLog2
// + 1, 0].
double largest_ulp_error(std::uint32_t stride) {
  double worst = 0;
  const auto lowest = std::bit_cast<std::uint32_t>(kMinLog2 + 1);
  for (std::uint32_t bits = 0x80000000u; bits <= lowest; bits += stride) {
    const float x = std::bit_cast<float>(bits);
    const double want = std::exp2(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::fmax(worst, std::abs(weight(x) - want) / ulp);
  }
  return worst;
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include "tests/support/on_target.h"

namespace isentrope {
namespace {

HWY_EXPORT(weight);
HWY_EXPORT(t_after);
HWY_EXPORT(larger_or_nan);
HWY_EXPORT(largest_ulp_error);

class ExpOnTarget : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(ExpOnTarget);

TEST_P(ExpOnTarget, ErrorIsAtMostOnePointOneUlp) {
  const double worst = HWY_DYNAMIC_DISPATCH(largest_ulp_error)(997);
  std::printf("largest error: %.3f ulp\n", worst);
  EXPECT_LE(worst, 1.1);
}

TEST_P(ExpOnTarget, Edges) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(weight)(0.0f), 1.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(weight)(-0.0f), 1.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(weight)(-126.0f), 0x1p-126f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(weight)(-127.0f), 0.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(weight)(-infinity), 0.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(t_after)(-infinity), -127.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(weight)(-1e30f), 0.0f);
}

TEST_P(ExpOnTarget, EveryNaNStaysNaN) {
  for (const std::uint32_t bits :
       {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu, 0x7fc00001u}) {
    EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(weight)(std::bit_cast<float>(bits))))
        << std::hex << bits;
  }
}

TEST_P(ExpOnTarget, TheMaximumKeepsNaN) {
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(larger_or_nan)(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(larger_or_nan)(1.0f, -2.0f), 1.0f);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(larger_or_nan)(1.0f, nan)));
}

}  // namespace
}  // namespace isentrope
#endif  // HWY_ONCE
