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

enum class Left { rows, weights };

// What follows mirrors panel_product() of tile_product-inl.h.
template <std::size_t kCount, Left kLeft>
ISENTROPE_BF16 void panel_product(const Product& t, const float* b, float* c) {
  constexpr std::size_t kStride = kLeft == Left::rows ? kColumns : kBlockKeys;
  __m512 low[kCount], high[kCount];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kCount; ++r) low[r] = high[r] = _mm512_setzero_ps();
  const float* a = t.a;
  for (std::size_t left = t.depth; left > 0; a += t.a_panel) {
    const std::size_t depth = kLeft == Left::rows ? std::min(left, kColumns) : left;
    left -= depth;
    for (std::size_t k = 0; k < depth; ++k, b += kColumns) {
      const __m512bh b_low = units_at(b), b_high = units_at(b + 16);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kCount; ++r) {
        const __m512bh unit = unit_everywhere(a + r * kStride + k);
        low[r] = _mm512_dpbf16_ps(low[r], unit, b_low);
        high[r] = _mm512_dpbf16_ps(high[r], unit, b_high);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kCount; ++r) {
    const __m512 factor = _mm512_set1_ps(t.factors[r]);
    float* to = c + r * t.c_stride;
    if constexpr (kLeft == Left::rows) {
      _mm512_store_ps(to, _mm512_mul_ps(factor, low[r]));
      _mm512_store_ps(to + 16, _mm512_mul_ps(factor, high[r]));
    } else {
      _mm512_store_ps(to, _mm512_fmadd_ps(factor, _mm512_load_ps(to), low[r]));
      _mm512_store_ps(to + 16, _mm512_fmadd_ps(factor, _mm512_load_ps(to + 16), high[r]));
    }
  }
}

template <Left kLeft>
void multiply(const Product& t) {
  const float* b = t.b;
  for (std::size_t column = 0; column < t.columns; column += kColumns, b += t.b_panel) {
    float* c = t.c + column;
    if (t.rows > 8) {
      panel_product<12, kLeft>(t, b, c);
    } else if (t.rows > 4) {
      panel_product<8, kLeft>(t, b, c);
    } else {
      panel_product<4, kLeft>(t, b, c);
    }
  }
}

}  // namespace

bool is_supported() { return __builtin_cpu_supports("avx512bf16"); }

void multiply_rows(const Product& t) { multiply<Left::rows>(t); }
void add_weighted(const Product& t) { multiply<Left::weights>(t); }

ISENTROPE_BF16 void round_weights(const float* weights, std::size_t count, float* units) {
  for (std::size_t j = 0; j < count; j += 32) {
    const __m512 first = _mm512_load_ps(weights + j), second = _mm512_load_ps(weights + j + 16);
    _mm512_store_ps(units + j / 2, reinterpret_cast<__m512>(_mm512_cvtne2ps_pbh(second, first)));
  }
}

}  // namespace isentrope::bf16

#else

namespace isentrope::bf16 {

bool is_supported() { return false; }
void multiply_rows(const Product&) {}
void add_weighted(const Product&) {}
void round_weights(const float*, std::size_t, float*) {}

}  // namespace isentrope::bf16

#endif
