// Matrix products of Arm's FEAT_BF16: BFMMLA adds a product of 2 x 4 by 4 x 2 numbers to 2 x 2
// sums.
//
// Vectors hold two rows and two columns, zipped from pairs when loaded. Four numbers of the depth
// take 24 products and 10 zips, or 6 if arrange() zipped the right operand before.

#include "src/cpu/block_sizes.h"
#include "src/cpu/product/pair_kernels.h"

#if defined(__aarch64__) && defined(__GNUC__) && defined(__linux__)

#include <arm_neon.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdint>
#include <limits>

// Applies to one function, because the rest of the library runs on CPUs without.
#define ISENTROPE_BF16 __attribute__((target("+bf16")))

namespace isentrope {
namespace {

constexpr std::size_t kRows = 12, kColumns = 8;  // of the register tile
constexpr std::size_t kDepth = 2;                // pairs of the depth in one product
using Product = TileProduct<Pair>;

// Pairs may be at any even address.
ISENTROPE_BF16 inline uint32x4_t four_pairs(const Pair* from) {
  return vreinterpretq_u32_u16(vld1q_u16(reinterpret_cast<const std::uint16_t*>(from)));
}
ISENTROPE_BF16 inline uint32x2_t two_pairs(const Pair* from) {
  return vreinterpret_u32_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(from)));
}

// Pairs k and k + 1 of four rows of the left operand, two rows in a vector.
struct FourRows {
  uint32x4_t two[2];
};
// Offset of pair (row, k) of the left operand, for up to `chunk` of the depth in a panel.
template <std::size_t kRow, std::size_t kChunk = std::numeric_limits<std::size_t>::max()>
struct AlongRows {
  static constexpr std::size_t row(const Product&) { return kRow; }
  static constexpr std::size_t step = 1, chunk = kChunk;
  ISENTROPE_BF16 static FourRows load(const Pair* from, std::size_t row) {
    return {{vcombine_u32(two_pairs(from), two_pairs(from + row)),
             vcombine_u32(two_pairs(from + 2 * row), two_pairs(from + 3 * row))}};
  }
};
struct WhereRowsLie : AlongRows<0> {
  static std::size_t row(const Product& t) { return t.a_stride; }
};
template <std::size_t kStep>
struct AcrossRows {
  static constexpr std::size_t row(const Product&) { return 1; }
  static constexpr std::size_t step = kStep, chunk = std::numeric_limits<std::size_t>::max();
  ISENTROPE_BF16 static FourRows load(const Pair* from, std::size_t) {
    const uint32x4_t first = four_pairs(from), second = four_pairs(from + kStep);
    return {{vzip1q_u32(first, second), vzip2q_u32(first, second)}};
  }
};

// Pairs k and k + 1 of 8 columns of the right operand, two columns in a vector.
struct EightColumns {
  uint32x4_t two[4];
};
ISENTROPE_BF16 inline EightColumns zipped(const Pair* b) {
  const uint32x4_t low = four_pairs(b), next_low = four_pairs(b + kColumns);
  const uint32x4_t high = four_pairs(b + 4), next_high = four_pairs(b + kColumns + 4);
  return {{vzip1q_u32(low, next_low), vzip2q_u32(low, next_low), vzip1q_u32(high, next_high),
           vzip2q_u32(high, next_high)}};
}
ISENTROPE_BF16 inline EightColumns arranged(const Pair* b) {
  return {{four_pairs(b), four_pairs(b + 4), four_pairs(b + 8), four_pairs(b + 12)}};
}
// Zips packed panels in place, once for all rows of the left operand.
ISENTROPE_BF16 void arrange(Pair* panels, std::size_t pairs) {
  for (Pair* at = panels; at < panels + pairs; at += kDepth * kColumns) {
    const EightColumns columns = zipped(at);
    for (std::size_t c = 0; c < 4; ++c)
      vst1q_u16(reinterpret_cast<std::uint16_t*>(at + 4 * c),
                vreinterpretq_u16_u32(columns.two[c]));
  }
}

// Result: C = (A B) times a factor by row or by column; C times a factor by column + A B; C + A B.
enum class Into { times_row, times_column, scale, add };

ISENTROPE_BF16 inline float32x4_t multiply(float32x4_t sums, uint32x4_t left, uint32x4_t right) {
  return vbfmmlaq_f32(sums, vreinterpretq_bf16_u32(left), vreinterpretq_bf16_u32(right));
}

// Adds four columns of a row to C.
template <Into kInto>
ISENTROPE_BF16 inline void join(float32x4_t sum, const float* factor, float* to) {
  if constexpr (kInto == Into::add) {
    sum = vaddq_f32(vld1q_f32(to), sum);
  } else if constexpr (kInto == Into::scale) {
    sum = vfmaq_f32(sum, vld1q_f32(factor), vld1q_f32(to));
  } else {
    sum = vmulq_f32(kInto == Into::times_row ? vdupq_n_f32(*factor) : vld1q_f32(factor), sum);
  }
  vst1q_f32(to, sum);
}

template <std::size_t kCount, typename Left, Into kInto>
ISENTROPE_BF16 void panel_product(const Product& t, std::size_t row, std::size_t column) {
  float32x4_t sums[kCount / 2][4];
#pragma GCC unroll 8
  for (auto& of_rows : sums) {
#pragma GCC unroll 4
    for (auto& sum : of_rows) sum = vdupq_n_f32(0);
  }
  const std::size_t a_row = Left::row(t);
  const Pair* a = t.a + row * a_row;
  const Pair* b = t.b + column / kColumns * t.b_panel;
  for (std::size_t left = t.depth; left > 0; a += t.a_panel) {
    const std::size_t depth = std::min(left, Left::chunk);
    left -= depth;
    for (std::size_t k = 0; k < depth; k += kDepth, b += kDepth * kColumns) {
      constexpr bool kIsArranged = kInto == Into::times_row || kInto == Into::times_column;
      const EightColumns right = kIsArranged ? arranged(b) : zipped(b);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < kCount; r += 4) {
        const FourRows rows = Left::load(a + r * a_row + k * Left::step, a_row);
#pragma GCC unroll 2
        for (std::size_t i = 0; i < 2; ++i) {
#pragma GCC unroll 4
          for (std::size_t c = 0; c < 4; ++c)
            sums[r / 2 + i][c] = multiply(sums[r / 2 + i][c], rows.two[i], right.two[c]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kCount / 2; ++r) {
#pragma GCC unroll 2
    for (std::size_t c = 0; c < 2; ++c) {
      const std::size_t first = row + 2 * r, at = column + 4 * c;
      const float* factors = kInto == Into::times_row ? t.factors + first : t.factors + at;
      const float32x4_t low = sums[r][2 * c], high = sums[r][2 * c + 1];
      float* to = t.c + first * t.c_stride + at;
      join<kInto>(vcombine_f32(vget_low_f32(low), vget_low_f32(high)), factors, to);
      join<kInto>(vcombine_f32(vget_high_f32(low), vget_high_f32(high)),
                  kInto == Into::times_row ? factors + 1 : factors, to + t.c_stride);
    }
  }
}

// Remaining rows are processed in fours.
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
  constexpr unsigned long kBf16 = 1ul << 14;  // bit of HWCAP2
  return getauxval(AT_HWCAP2) & kBf16 ? nullptr : "this CPU does not have it";
}

ISENTROPE_BF16 inline uint16x8_t rounded(const float* from) {
  const bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(from));
  return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, vld1q_f32(from + 4)));
}
ISENTROPE_BF16 inline void store(Pair* to, uint16x8_t pairs) {
  vst1q_u16(reinterpret_cast<std::uint16_t*>(to), pairs);
}
ISENTROPE_BF16 inline void store_pairs(Pair* to, uint16x8_t first, uint16x8_t second) {
  store(to, vzip1q_u16(first, second));
  store(to + 4, vzip2q_u16(first, second));
}

ISENTROPE_BF16 void round_row(const float* row, std::size_t count, Pair* to) {
  for (std::size_t j = 0; j < count; j += 8) store(to + j / 2, rounded(row + j));
}

// Rounds two rows of 8 floats to one row of 8 pairs, in place. It is half as long, so only data
// already read is overwritten. Pairs past the end of the depth are 0.
ISENTROPE_BF16 Pair* round_tile(float* tile, std::size_t rows) {
  Pair* const pairs = reinterpret_cast<Pair*>(tile);
  const uint16x8_t none = vdupq_n_u16(0);
  const std::size_t padded = (rows + 2 * kDepth - 1) / (2 * kDepth) * 2 * kDepth;
  for (std::size_t row = 0; row < padded; row += 2) {
    const uint16x8_t first = row < rows ? rounded(tile + row * kColumns) : none;
    const uint16x8_t second = row + 1 < rows ? rounded(tile + (row + 1) * kColumns) : none;
    store_pairs(pairs + row / 2 * kColumns, first, second);
  }
  return pairs;
}

// Multiplies before the one rounding. The factor of a row that sees no key may be NaN.
ISENTROPE_BF16 inline uint16x8_t rounded_product(const float* from, float factor) {
  alignas(16) float products[8];
  for (std::size_t i = 0; i < 8; i += 4) {
    const float32x4_t x = vld1q_f32(from + i);
    vst1q_f32(products + i, vbslq_f32(vceqzq_f32(x), x, vmulq_n_f32(x, factor)));
  }
  return rounded(products);
}

ISENTROPE_BF16 void round_two_rows(const float* first, const float* second, const float factors[2],
                                   std::size_t count, Pair* to) {
  for (std::size_t j = 0; j < count; j += 8)
    store_pairs(to + j, rounded_product(first + j, factors[0]),
                rounded_product(second + j, factors[1]));
}

// Keeps results alive and hides the operands from the compiler.
volatile float observed = 0.5f;

ISENTROPE_BF16 std::size_t run_dot_products(std::size_t times) {
  constexpr std::size_t kSums = 24;
  // Sums of 0.5 * 0.5 stay finite for any number of rounds.
  const uint32x4_t half_pairs = vdupq_n_u32(0x3f003f00);
  float32x4_t sums[kSums];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = vdupq_n_f32(observed);  // hidden from the compiler
  for (std::size_t i = 0; i < times; ++i) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = multiply(sum, half_pairs, half_pairs);
  }
#pragma GCC unroll 24
  for (auto& sum : sums) observed = vgetq_lane_f32(sum, 0);
  return kSums * 16 * 2;
}

constexpr PairKernels kKernels = {
    .name = "BFMMLA",
    .why_not = why_not,
    .rows = kRows,
    .columns = kColumns,
    .depth = kDepth,
    .arrange = arrange,
    .multiply_packed = multiply<AlongRows<kColumns, kColumns>, Into::times_row>,
    .multiply_rows = multiply<WhereRowsLie, Into::times_column>,
    .add_weighted = multiply<AcrossRows<kColumns>, Into::scale>,
    .add_rows = multiply<AlongRows<kGradientKeys / 2>, Into::add>,
    .add_transposed = multiply<AcrossRows<kGradientKeys>, Into::add>,
    .round_row = round_row,
    .round_tile = round_tile,
    .round_two_rows = round_two_rows,
    .run_dot_products = run_dot_products,
};

}  // namespace

const PairKernels* neon_pair_kernels() { return &kKernels; }

}  // namespace isentrope

#else

namespace isentrope {

const PairKernels* neon_pair_kernels() { return nullptr; }

}  // namespace isentrope

#endif
