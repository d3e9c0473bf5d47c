#include "src/cpu/bf16_limit.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

namespace isentrope::bf16 {
namespace {

volatile float observed = 0.5f;

}  // namespace

// Of this function alone: the rest of the library runs on CPUs without.
__attribute__((target("avx512f,avx512bf16"))) std::size_t run_dot_products(std::size_t times) {
  constexpr std::size_t kSums = 12;
  const auto pairs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00));  // of 0.5
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (auto& sum : sums) sum = _mm512_set1_ps(observed);  // each apart, for all the compiler knows
  for (std::size_t i = 0; i < times; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, pairs, pairs);
  }
#pragma GCC unroll 16
  for (auto& sum : sums) observed = _mm512_cvtss_f32(sum);
  return kSums * 16 * 4;
}

}  // namespace isentrope::bf16

#else

namespace isentrope::bf16 {

std::size_t run_dot_products(std::size_t) { return 0; }

}  // namespace isentrope::bf16

#endif
