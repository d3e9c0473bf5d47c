// Dot products of AVX-512 BF16.

#include "src/cpu/block_sizes.h"
#include "src/cpu/product/pair_kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

// Highway 1.0.3 of Debian 12 has no bf16 dot product. The attribute applies to one function,
// because the rest of the library runs on CPUs without.
#define ISENTROPE_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))

namespace isentrope {
namespace {

constexpr std::size_t kRows = 12, kColumns = 32;  // of the register tile
using Product = TileProduct<Pair>;

ISENTROPE_BF16 inline __m512bh pairs_at(const Pair* from) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(from));
}
ISENTROPE_BF16 inline __m512bh pair_everywhere(const Pair* from) {
  // Pairs may be at any even address, as Pair declares; the broadcast allows it.
  int bits;
  std::memcpy(&bits, from, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

// Offset of pair (row, k) of the left operand, for up to kChunk of the depth in a panel.
template <std::size_t kRow, std::size_t kDepth,
          std::size_t kChunk = std::numeric_limits<std::size_t>::max()>
struct Left {
  static constexpr std::size_t row(const Product&) { return kRow; }
  static constexpr std::size_t depth = kDepth, chunk = kChunk;
};
struct LeftRows : Left<0, 1> {
  static std::size_t row(const Product& t) { return t.a_stride; }
};

// Result: C = (A B) times a factor by row or by column; C times a factor by column + A B; C + A B.
enum class Into { times_row, times_column, scale, add };

// The factor of a row that sees no key may be NaN.
ISENTROPE_BF16 inline __m512 times_unless_zero(__m512 factor, __m512 x) {
  return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ), factor, x);
}

// Permutation that interleaves the bf16 numbers of two vectors into pairs.
alignas(64) constexpr std::uint16_t kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

// Rounds two vectors to pairs of their lanes.
ISENTROPE_BF16 inline __m512i pairs_of(__m512 first, __m512 second, __m512i interleave) {
  return _mm512_permutexvar_epi16(interleave,
                                  reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
}

// Same loops as panel_product() in f32-inl.h, which has the reasons.
template <std::size_t kCount, typename Left, Into kInto>
ISENTROPE_BF16 void panel_product(const Product& t, std::size_t row, std::size_t column) {
  __m512 low[kCount], high[kCount];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kCount; ++r) low[r] = high[r] = _mm512_setzero_ps();
  const std::size_t a_row = Left::row(t);
  const Pair* a = t.a + row * a_row;
  const Pair* b = t.b + column / kColumns * t.b_panel;
  for (std::size_t left = t.depth; left > 0; a += t.a_panel) {
    const std::size_t depth = std::min(left, Left::chunk);
    left -= depth;
    for (std::size_t k = 0; k < depth; ++k, b += kColumns) {
      const __m512bh b_low = pairs_at(b), b_high = pairs_at(b + 16);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kCount; ++r) {
        const __m512bh pair = pair_everywhere(a + r * a_row + k * Left::depth);
        low[r] = _mm512_dpbf16_ps(low[r], pair, b_low);
        high[r] = _mm512_dpbf16_ps(high[r], pair, b_high);
      }
    }
  }
  [[maybe_unused]] __m512 by_low = _mm512_setzero_ps(), by_high = by_low;
  if constexpr (kInto == Into::times_column || kInto == Into::scale) {
    by_low = _mm512_loadu_ps(t.factors + column);
    by_high = _mm512_loadu_ps(t.factors + column + 16);
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kCount; ++r) {
    float* to = t.c + (row + r) * t.c_stride + column;
    if constexpr (kInto == Into::add) {
      low[r] = _mm512_add_ps(_mm512_load_ps(to), low[r]);
      high[r] = _mm512_add_ps(_mm512_load_ps(to + 16), high[r]);
    } else if constexpr (kInto == Into::scale) {
      low[r] = _mm512_fmadd_ps(by_low, _mm512_load_ps(to), low[r]);
      high[r] = _mm512_fmadd_ps(by_high, _mm512_load_ps(to + 16), high[r]);
    } else {
      if constexpr (kInto == Into::times_row) by_low = by_high = _mm512_set1_ps(t.factors[row + r]);
      low[r] = _mm512_mul_ps(by_low, low[r]);
      high[r] = _mm512_mul_ps(by_high, high[r]);
    }
    _mm512_store_ps(to, low[r]);
    _mm512_store_ps(to + 16, high[r]);
  }
}

// Remaining rows are processed in fours: 64 keys are five tiles of 12 and one of 4, not six of 12.
template <typename Left, Into kInto>
void multiply(const Product& t) {
  for (std::size_t column = 0; column < t.columns; column += kColumns) {
    for (std::size_t row = 0; row < t.rows; row += kRows) {
      if (t.rows - row > 8) {
        panel_product<12, Left, kInto>(t, row, column);
      } else if (t.rows - row > 4) {
        panel_product<8, Left, kInto>(t, row, column);
      } else {
        panel_product<4, Left, kInto>(t, row, column);
      }
    }
  }
}

const char* why_not() {
  return __builtin_cpu_supports("avx512bf16") ? nullptr : "this CPU does not have it";
}

// A dot product of pairs does twice the work of a multiply-add. On Intel CPUs it takes four times
// as long: a Xeon reaches 96 GFLOP/s with pairs and 192 in f32. On AMD's it takes as long.
const char* why_slow() {
  return __builtin_cpu_is("intel") ? "on Intel CPUs products of f32 are twice as fast" : nullptr;
}

ISENTROPE_BF16 void round_row(const float* row, std::size_t count, Pair* to) {
  for (std::size_t j = 0; j < count; j += 32) {
    const __m512 first = _mm512_load_ps(row + j), second = _mm512_load_ps(row + j + 16);
    _mm512_store_si512(to + j / 2, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
}

// Rounds two rows of 32 floats to one of 32 pairs in place: only data already read is overwritten.
ISENTROPE_BF16 Pair* round_tile(float* tile, std::size_t rows) {
  const __m512i interleave = _mm512_load_si512(kInterleave);
  Pair* const pairs = reinterpret_cast<Pair*>(tile);
  Pair* to = pairs;
  for (std::size_t row = 0; row < rows; row += 2, to += kColumns) {
    const float* first = tile + row * kColumns;
    const bool is_last_row = row + 1 == rows;
    for (std::size_t c = 0; c < kColumns; c += 16) {
      const __m512 next = is_last_row ? _mm512_setzero_ps() : _mm512_load_ps(first + kColumns + c);
      _mm512_store_si512(to + c, pairs_of(_mm512_load_ps(first + c), next, interleave));
    }
  }
  return pairs;
}

// Multiplied before rounding, so that each number is rounded once.
ISENTROPE_BF16 void round_two_rows(const float* first, const float* second, const float factors[2],
                                   std::size_t count, Pair* to) {
  const __m512i interleave = _mm512_load_si512(kInterleave);
  const __m512 first_factor = _mm512_set1_ps(factors[0]),
               second_factor = _mm512_set1_ps(factors[1]);
  for (std::size_t j = 0; j < count; j += 16) {
    const __m512 first_row = times_unless_zero(first_factor, _mm512_load_ps(first + j));
    const __m512 second_row = times_unless_zero(second_factor, _mm512_load_ps(second + j));
    _mm512_store_si512(to + j, pairs_of(first_row, second_row, interleave));
  }
}

// Keeps results alive and hides the operands from the compiler.
volatile float observed = 0.5f;

ISENTROPE_BF16 std::size_t run_dot_products(std::size_t times) {
  constexpr std::size_t kSums = 12;
  // Sums of 0.5 * 0.5 stay finite for any number of rounds.
  const auto half_pairs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00));
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (auto& sum : sums) sum = _mm512_set1_ps(observed);  // hidden from the compiler
  for (std::size_t i = 0; i < times; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, half_pairs, half_pairs);
  }
#pragma GCC unroll 16
  for (auto& sum : sums) observed = _mm512_cvtss_f32(sum);
  return kSums * 16 * 4;
}

// Constant strides become part of the load, hence one instance for each layout of the left operand.
constexpr PairKernels kKernels = {
    .name = "AVX-512 BF16",
    .why_not = why_not,
    .why_slow = why_slow,
    .rows = kRows,
    .columns = kColumns,
    .multiply_packed = multiply<Left<kColumns, 1, kColumns>, Into::times_row>,
    .multiply_rows = multiply<LeftRows, Into::times_column>,
    .add_weighted = multiply<Left<1, kColumns>, Into::scale>,
    .add_rows = multiply<Left<kGradientKeys / 2, 1>, Into::add>,
    .add_transposed = multiply<Left<1, kGradientKeys>, Into::add>,
    .round_row = round_row,
    .round_tile = round_tile,
    .round_two_rows = round_two_rows,
    .run_dot_products = run_dot_products,
};

}  // namespace

const PairKernels* avx512_pair_kernels() { return &kKernels; }

}  // namespace isentrope

#else

namespace isentrope {

const PairKernels* avx512_pair_kernels() { return nullptr; }

}  // namespace isentrope

#endif
