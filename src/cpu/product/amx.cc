// Products of AMX: 16 rows by 16 columns and 16 pairs deep in one instruction, in 16 cycles. f16
// differs from bf16 in the instruction only.
//
// Products compute blocks of 2 x 2 tiles of C from four tiles of A and B at each step of the depth:
// 32 cycles to load, 64 to multiply. AVX-512 adds a block to C, with factors, during the next one.

#include "src/cpu/product/amx_tiles.h"
#include "src/cpu/product/pair_kernels.h"

#if ISENTROPE_HAS_AMX_TILES

#include <immintrin.h>

#include <algorithm>
#include <utility>

#include "src/cpu/block_sizes.h"

#define ISENTROPE_AVX512 __attribute__((target("avx512f")))

namespace isentrope {
namespace {

using amx::kSide;
using Product = TileProduct<Pair>;

constexpr std::size_t kBlock = 2 * kSide;  // rows and columns of a block of C, a panel's width
constexpr std::size_t kPairs = kBlock;     // from one row to the next in a panel of pairs

// Tiles of A with `rows` rows: tile (t, step) begins at data + t * tile + step / 2 * two_steps +
// step % 2 * one_step. Its rows are `stride` apart. All units are pairs.
struct LeftTiles {
  const Pair* data;
  std::size_t rows, stride, tile, one_step, two_steps;
};
// Tiles of B, 2 side by side: tile (step, t) begins at data + step * kSide * stride + t * kSide.
struct RightTiles {
  const Pair* data;
  std::size_t stride;
};
// Place of a block in C: tile (i, j) begins at data + i * down + j * across, in floats.
struct BlockOfC {
  float* data;
  std::size_t stride, down, across;
  const float* of_rows = nullptr;     // factors of the block's rows
  const float* of_columns = nullptr;  // factors of its columns
};
struct Block {
  LeftTiles a;
  RightTiles b;
  BlockOfC c;
};

// The caller's rows may end within a tile; the rest of the tile is 0.
template <int kTile>
ISENTROPE_AVX512 void load_some_rows(const Pair* from, std::size_t rows, std::size_t stride) {
  alignas(64) Pair full_tile[kSide * kSide];
  for (std::size_t r = 0; r < kSide; ++r) {
    const __m512i row = r < rows ? _mm512_loadu_si512(from + r * stride) : _mm512_setzero_si512();
    _mm512_store_si512(full_tile + r * kSide, row);
  }
  amx::load<kTile>(full_tile, kSide * sizeof(Pair));
}

template <int kTile, bool kWhole>
void load_left(const Pair* from, std::size_t rows, std::size_t stride) {
  if (kWhole || rows >= kSide) return amx::load<kTile>(from, stride * sizeof(Pair));
  load_some_rows<kTile>(from, rows, stride);
}

// Tiles 0 to 3 hold C, 4 and 5 A, 6 and 7 B. If A has one tile only, the lower two of C are unused.
// kWhole: A has all its rows.
template <DType kType, bool kWhole>
void multiply_block(const LeftTiles& a, const RightTiles& b, std::size_t steps) {
  amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>();
  const Pair *left = a.data, *right = b.data;
  const std::size_t rows = a.rows, tile = a.tile, stride = a.stride;
  std::size_t next = a.one_step, after_next = a.two_steps - a.one_step;
  const std::size_t right_stride = b.stride * sizeof(Pair), right_step = kSide * b.stride;
  for (std::size_t step = 0; step < steps; ++step) {
    amx::load<6>(right, right_stride);
    load_left<4, kWhole>(left, rows, stride);
    amx::multiply_pairs<kType, 0, 4, 6>();
    amx::load<7>(right + kSide, right_stride);
    amx::multiply_pairs<kType, 1, 4, 7>();
    if (kWhole || rows > kSide) {
      load_left<5, kWhole>(left + tile, rows - kSide, stride);
      amx::multiply_pairs<kType, 2, 5, 6>();
      amx::multiply_pairs<kType, 3, 5, 7>();
    }
    left += next;
    std::swap(next, after_next);
    right += right_step;
  }
}

void store_block(const BlockOfC& to, bool has_lower) {
  const std::size_t stride = to.stride * sizeof(float);
  amx::store<0>(to.data, stride), amx::store<1>(to.data + to.across, stride);
  if (!has_lower) return;
  float* const lower = to.data + to.down;
  amx::store<2>(lower, stride), amx::store<3>(lower + to.across, stride);
}

// Result: C = (A B) times a factor by row or by column; C times a factor by column + A B; C + A B.
enum class Into { times_row, times_column, scale, add };

// To replace C, blocks are multiplied in place: 1.13 times the speed of a separate block.
template <Into kInto>
constexpr bool kInPlace = kInto == Into::times_row || kInto == Into::times_column;

// Weights, at most 1, are multiplied by 2^14 before rounding to f16, and sums divided again when
// added. Weights of at least 2^-28 keep 11 bits; smaller ones are off by at most 2^-39.
constexpr float kWeightFactor = 0x1p14f;

template <DType kType, Into kInto>
ISENTROPE_AVX512 void join_block(const float* block, std::size_t rows, const BlockOfC& c) {
  [[maybe_unused]] __m512 by[2];
  if constexpr (kInto == Into::times_column || kInto == Into::scale) {
    by[0] = _mm512_loadu_ps(c.of_columns);
    by[1] = _mm512_loadu_ps(c.of_columns + kSide);
  }
  [[maybe_unused]] const float* of_row = c.of_rows;
  for (std::size_t tile = 0; tile * kSide < rows; ++tile) {
    float* to = c.data + tile * c.down;
    const std::size_t last = std::min(kSide, rows - tile * kSide);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < last; ++r, to += c.stride, block += kBlock) {
      if constexpr (kInto == Into::times_row) by[0] = by[1] = _mm512_set1_ps(*of_row++);
#pragma GCC unroll 2
      for (std::size_t j = 0; j < 2; ++j) {
        float* at = to + j * c.across;
        __m512 x = _mm512_load_ps(at);
        if constexpr (kInPlace<kInto>) {
          x = _mm512_mul_ps(by[j], x);
        } else if constexpr (kInto == Into::scale && kType == DType::f16) {
          const __m512 unit = _mm512_set1_ps(1 / kWeightFactor);
          x = _mm512_fmadd_ps(unit, _mm512_load_ps(block + j * kSide), _mm512_mul_ps(by[j], x));
        } else if constexpr (kInto == Into::scale) {
          x = _mm512_fmadd_ps(by[j], x, _mm512_load_ps(block + j * kSide));
        } else {
          x = _mm512_add_ps(x, _mm512_load_ps(block + j * kSide));
        }
        _mm512_store_ps(at, x);
      }
    }
  }
}

// A has rows `a_stride` apart with contiguous depth, two steps to a panel if it is packed. B is in
// panels; blocks of one panel are consecutive.
template <Into kInto>
Block block_of_rows(const Product& t, std::size_t index, std::size_t a_stride,
                    std::size_t two_steps) {
  const std::size_t down = (t.rows + kBlock - 1) / kBlock;
  const std::size_t row = index % down * kBlock, column = index / down * kBlock;
  Block block{{t.a + row * a_stride, t.rows - row, a_stride, kSide * a_stride, kSide, two_steps},
              {t.b + column / kBlock * t.b_panel, kPairs},
              {t.c + row * t.c_stride + column, t.c_stride, kSide * t.c_stride, kSide}};
  if constexpr (kInto == Into::times_row) block.c.of_rows = t.factors + row;
  if constexpr (kInto == Into::times_column) block.c.of_columns = t.factors + column;
  return block;
}
Block block_of_packed(const Product& t, std::size_t index) {
  return block_of_rows<Into::times_row>(t, index, kPairs, t.a_panel);
}
Block block_of_keys(const Product& t, std::size_t index) {
  return block_of_rows<Into::times_column>(t, index, t.a_stride, 2 * kSide);
}
Block block_of_dq(const Product& t, std::size_t index) {
  return block_of_rows<Into::add>(t, index, kGradientKeys / 2, 2 * kSide);
}

// Returns the left tiles of a transposed panel.
LeftTiles turned(const Pair* panel, std::size_t rows) {
  return {panel, rows, kPairs, kSide, kSide * kPairs, 2 * kSide * kPairs};
}

Block block_of_values(const Product& t, std::size_t index) {
  const std::size_t column = index * kBlock;
  return {turned(t.a, t.rows),
          {t.b + index * t.b_panel, kPairs},
          {t.c + column, t.c_stride, kSide * t.c_stride, kSide, nullptr, t.factors + column}};
}

// Computes C^T += B^T A. Packing transposes B, which is rare; A would need it for each tile. The
// sums are therefore transposed block by block.
Block block_of_transposed(const Product& t, std::size_t index) {
  const std::size_t down = (t.rows + kBlock - 1) / kBlock;
  const std::size_t row = index % down * kBlock, panel = index / down;
  return {turned(t.b + panel * t.b_panel, kBlock),
          {t.a + row, kGradientKeys},
          {t.c + row * t.c_stride + panel * kBlock, t.c_stride, kSide, kSide * t.c_stride}};
}

// Adds a block to C while the next one is multiplied.
template <DType kType, Into kInto, Block (*kBlockOf)(const Product&, std::size_t)>
void multiply(const Product& t) {
  const std::size_t down = kInto == Into::scale ? 1 : (t.rows + kBlock - 1) / kBlock;
  const std::size_t blocks = down * ((t.columns + kBlock - 1) / kBlock), steps = t.depth / kSide;
  if (blocks * steps == 0) return;
  alignas(64) float sums[2][kBlock * kBlock];
  Block previous{};
  const auto join_previous = [&](std::size_t index) {
    if (index > 0)
      join_block<kType, kInto>(sums[~index & 1], std::min(previous.a.rows, kBlock), previous.c);
  };
  for (std::size_t index = 0; index < blocks; ++index) {
    const Block block = kBlockOf(t, index);
    block.a.rows >= kBlock ? multiply_block<kType, true>(block.a, block.b, steps)
                           : multiply_block<kType, false>(block.a, block.b, steps);
    join_previous(index);
    const BlockOfC scratch = {sums[index & 1], kBlock, kSide * kBlock, kSide};
    store_block(kInPlace<kInto> ? block.c : scratch, block.a.rows > kSide);
    previous = block;
  }
  join_previous(blocks);
}

void begin() { amx::configure(amx::Configuration()); }
void end() { amx::release(); }

// Rounds 16 numbers times kWeightFactor to f16 in the lower halves of their lanes. Masked, because
// GCC 12 warns of undefined values in the unmasked functions.
constexpr __mmask16 kAllLanes = 0xffff;
ISENTROPE_AVX512 inline __m512i weights_in_f16(const float* from) {
  const __m512 weights = _mm512_mul_ps(_mm512_set1_ps(kWeightFactor), _mm512_load_ps(from));
  const __m256i rounded = _mm512_maskz_cvtps_ph(kAllLanes, weights, _MM_FROUND_TO_NEAREST_INT);
  return _mm512_maskz_cvtepu16_epi32(kAllLanes, rounded);
}
// Same as AVX-512's rounding to bf16.
ISENTROPE_AVX512 Pair* round_tile_to_f16(float* tile, std::size_t rows) {
  Pair* const pairs = reinterpret_cast<Pair*>(tile);
  Pair* to = pairs;
  for (std::size_t row = 0; row < rows; row += 2, to += kPairs) {
    const float* from = tile + row * kBlock;
    for (std::size_t c = 0; c < kBlock; c += kSide) {
      const __m512i first = weights_in_f16(from + c);
      const __m512i second =
          row + 1 < rows ? weights_in_f16(from + kBlock + c) : _mm512_setzero_si512();
      const __m512i shifted = _mm512_maskz_slli_epi32(kAllLanes, second, 16);
      _mm512_store_si512(to + c, _mm512_or_si512(first, shifted));
    }
  }
  return pairs;
}

// Pairs of rows past the end of the depth are 0.
template <DType kType>
Pair* round_tile(float* tile, std::size_t rows) {
  Pair* const pairs = kType == DType::f16 ? round_tile_to_f16(tile, rows)
                                          : avx512_pair_kernels()->round_tile(tile, rows);
  const std::size_t count = (rows + 1) / 2, padded = (count + kSide - 1) / kSide * kSide;
  std::fill_n(pairs + count * kPairs, (padded - count) * kPairs, Pair{});
  return pairs;
}

template <DType kType>
std::size_t run_dot_products(std::size_t times) {
  alignas(64) std::uint16_t half_operand[kSide * kBlock];
  std::fill_n(half_operand, kSide * kBlock, std::uint16_t{kType == DType::f16 ? 0x3800 : 0x3f00});
  begin();
  amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>();
  amx::load<4>(half_operand, 64), amx::load<6>(half_operand, 64);
  for (std::size_t i = 0; i < times; ++i) {
    amx::multiply_pairs<kType, 0, 4, 6>(), amx::multiply_pairs<kType, 1, 4, 6>();
    amx::multiply_pairs<kType, 2, 4, 6>(), amx::multiply_pairs<kType, 3, 4, 6>();
  }
  end();
  return 4 * kSide * kSide * kBlock * 2;
}

template <DType kType>
const char* why_not() {
  return kType == DType::f16 && !amx::cpu_multiplies_f16() ? "this CPU does not have it"
                                                           : amx::why_not();
}

template <DType kType>
PairKernels forward_kernels() {
  return {.name = kType == DType::f16 ? "AMX-FP16" : "AMX",
          .why_not = why_not<kType>,
          .rows = kBlock,
          .columns = kBlock,
          .depth = kSide,
          .type = kType,
          .is_turned = true,
          .begin = begin,
          .end = end,
          .multiply_rows = multiply<kType, Into::times_column, block_of_keys>,
          .add_weighted = multiply<kType, Into::scale, block_of_values>,
          .round_tile = round_tile<kType>,
          .run_dot_products = run_dot_products<kType>};
}

PairKernels bf16_kernels() {
  PairKernels kernels = forward_kernels<DType::bf16>();
  kernels.decode_rows = 10;
  kernels.multiply_packed = multiply<DType::bf16, Into::times_row, block_of_packed>;
  kernels.add_rows = multiply<DType::bf16, Into::add, block_of_dq>;
  kernels.add_transposed = multiply<DType::bf16, Into::add, block_of_transposed>;
  kernels.round_row = avx512_pair_kernels()->round_row;
  kernels.round_two_rows = avx512_pair_kernels()->round_two_rows;
  return kernels;
}

}  // namespace

const PairKernels* amx_pair_kernels(DType type) {
  if (!avx512_pair_kernels()) return nullptr;
  static const PairKernels of_bf16 = bf16_kernels(), of_f16 = forward_kernels<DType::f16>();
  return type == DType::f16 ? &of_f16 : &of_bf16;
}

}  // namespace isentrope

#else

namespace isentrope {

const PairKernels* amx_pair_kernels(DType /*type*/) { return nullptr; }

}  // namespace isentrope

#endif
