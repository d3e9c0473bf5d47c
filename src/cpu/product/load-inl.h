// Loads f32, bf16 or f16 as floats, widened exactly.

#if defined(ISENTROPE_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_LOAD_INL_H_
#undef ISENTROPE_LOAD_INL_H_
#else
#define ISENTROPE_LOAD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "isentrope/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <typename D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint32_t, D>> load_bits(D d, const void* from) {
  const hn::Rebind<std::uint32_t, D> wide;
  const hn::Rebind<std::uint16_t, D> narrow;
  static_cast<void>(d);
  return hn::PromoteTo(wide, hn::LoadU(narrow, static_cast<const std::uint16_t*>(from)));
}

// bf16 is the upper half of a float, so a shift widens it exactly, NaN and denormals included.
template <typename D>
HWY_INLINE hn::Vec<D> load_floats(D d, const BFloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_bits(d, from)));
}

// Widens 8-bit codes exactly.
template <typename D>
HWY_INLINE hn::Vec<D> load_floats(D d, const std::int8_t* from) {
  const hn::Rebind<std::int32_t, D> wide;
  const hn::Rebind<std::int8_t, D> narrow;
  return hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, from)));
}

// Whether this target's CPUs widen f16 in one instruction, exactly, NaN, Inf and denormals
// included.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
inline constexpr bool kWidensF16 = true;
#else
inline constexpr bool kWidensF16 = false;
#endif

// Same as to_float(): the exponent of shifted bits is 112 too low, which a product corrects; it
// also normalises denormals. Highway's own conversion loses Inf and NaN if the CPU has none.
template <typename D>
HWY_INLINE hn::Vec<D> load_floats(D d, const Float16* from) {
  if constexpr (kWidensF16) {
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  const hn::Rebind<std::uint32_t, D> du;
  const auto bits = load_bits(d, from);
  const auto rest = hn::And(bits, hn::Set(du, 0x7fffu));
  const auto shifted = hn::ShiftLeft<13>(rest);
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(d, shifted), hn::Set(d, 0x1p112f)));
  const auto special = hn::Or(hn::Set(du, 0x7f800000u), shifted);
  const auto magnitude = hn::IfThenElse(hn::Gt(rest, hn::Set(du, 0x7bffu)), special, scaled);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  return hn::BitCast(d, hn::Or(sign, magnitude));
}

// Two floats that become a pair of bf16, first in the lower half, whose bits are moved as a float.
struct TwoFloats {
  float first, second;
};

// Rounds to the nearest bf16, ties to even, in the upper half. NaN stays NaN.
template <typename D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint32_t, D>> round_to_bf16([[maybe_unused]] D d, hn::Vec<D> x) {
  const hn::Rebind<std::uint32_t, D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
}

template <typename D>
HWY_INLINE hn::Vec<D> load_floats(D d, const TwoFloats* from) {
  const hn::Rebind<std::uint32_t, D> du;
  hn::Vec<D> first, second;
  hn::LoadInterleaved2(d, &from->first, first, second);
  const auto upper = hn::And(round_to_bf16(d, second), hn::Set(du, 0xffff0000u));
  return hn::BitCast(d, hn::Or(hn::ShiftRight<16>(round_to_bf16(d, first)), upper));
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
