#include "src/cpu/bf16_product.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <algorithm>

// Of this function alone: the rest of the library runs on CPUs without.
#define ISENTROPE_BF16 __attribute__((target("avx512f,avx512bf16")))

namespace isentrope::bf16 {
namespace {

ISENTROPE_BF16 inline __m512bh units_at(const float* from) {
  return reinterpret_cast<__m512bh>(_mm512_load_ps(from));
}
ISENTROPE_BF16 inline __m512bh unit_everywhere(const float* from) {
  return reinterpret_cast<__m512bh>(_mm512_set1_ps(*from));
}

// What follows mirrors panel_product() of tile_product-inl.h.
template <std::size_t kCount>
ISENTROPE_BF16 void panel_product(const Product& t, const float* b, float* c) {
  __m512 low[kCount], high[kCount];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kCount; ++r) low[r] = high[r] = _mm512_setzero_ps();
  const float* a = t.a;
  for (std::size_t left = t.depth; left > 0; a += t.a_panel) {
    const std::size_t depth = std::min(left, kColumns);
    left -= depth;
    for (std::size_t k = 0; k < depth; ++k, b += kColumns) {
      const __m512bh b_low = units_at(b), b_high = units_at(b + 16);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kCount; ++r) {
        const __m512bh unit = unit_everywhere(a + r * kColumns + k);
        low[r] = _mm512_dpbf16_ps(low[r], unit, b_low);
        high[r] = _mm512_dpbf16_ps(high[r], unit, b_high);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kCount; ++r) {
    const __m512 factor = _mm512_set1_ps(t.factors[r]);
    _mm512_store_ps(c + r * t.c_stride, _mm512_mul_ps(factor, low[r]));
    _mm512_store_ps(c + r * t.c_stride + 16, _mm512_mul_ps(factor, high[r]));
  }
}

}  // namespace

bool is_supported() { return __builtin_cpu_supports("avx512bf16"); }

void multiply(const Product& t) {
  const float* b = t.b;
  for (std::size_t column = 0; column < t.columns; column += kColumns, b += t.b_panel) {
    float* c = t.c + column;
    if (t.rows > 8) {
      panel_product<12>(t, b, c);
    } else if (t.rows > 4) {
      panel_product<8>(t, b, c);
    } else {
      panel_product<4>(t, b, c);
    }
  }
}

}  // namespace isentrope::bf16

#else

namespace isentrope::bf16 {

bool is_supported() { return false; }
void multiply(const Product&) {}

}  // namespace isentrope::bf16

#endif
