// Philox4x32-10, a counter-based random number generator (Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011), in vectors of counters.

#if defined(ISENTROPE_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_PHILOX_INL_H_
#undef ISENTROPE_PHILOX_INL_H_
#else
#define ISENTROPE_PHILOX_INL_H_
#endif

#include <array>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<Floats>;

// High and low halves of the products of 32-bit words.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void multiply_wide(hn::Vec<Words> a, std::uint32_t b, hn::Vec<Words>& high,
                              hn::Vec<Words>& low) {
  const std::uint64_t product = std::uint64_t{hn::GetLane(a)} * b;
  high = hn::Set(Words(), static_cast<std::uint32_t>(product >> 32));
  low = hn::Set(Words(), static_cast<std::uint32_t>(product));
}
#else
HWY_INLINE void multiply_wide(hn::Vec<Words> a, std::uint32_t b, hn::Vec<Words>& high,
                              hn::Vec<Words>& low) {
  const Words d;
  const hn::Repartition<std::uint64_t, Words> wide;
  const auto factor = hn::Set(d, b);
  // Only even lanes multiply to 64 bits.
  const auto odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const auto even = hn::MulEven(a, factor), odd = hn::MulEven(odd_lanes, factor);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}
#endif

// Replaces each lane's counter (a, b, c, d) by its four random words.
HWY_INLINE void philox(const std::array<std::uint32_t, 2>& seed, hn::Vec<Words>& a,
                       hn::Vec<Words>& b, hn::Vec<Words>& c, hn::Vec<Words>& d) {
  std::uint32_t key_0 = seed[0], key_1 = seed[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round, key_0 += 0x9E3779B9, key_1 += 0xBB67AE85) {
    hn::Vec<Words> high_a, low_a, high_c, low_c;
    multiply_wide(a, 0xD2511F53, high_a, low_a);
    multiply_wide(c, 0xCD9E8D57, high_c, low_c);
    a = hn::Xor(hn::Xor(high_c, b), hn::Set(Words(), key_0));
    c = hn::Xor(hn::Xor(high_a, d), hn::Set(Words(), key_1));
    b = low_c;
    d = low_a;
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
