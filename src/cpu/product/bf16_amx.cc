// The dot products of AMX: 16 rows by 16 columns and 16 pairs deep in one instruction, in 16
// cycles.
//
// Every product is one loop over blocks of 2 x 2 tiles of C, which four tiles of A and B feed for
// every step of the depth: 32 cycles of loading beside 64 of multiplying. The block is stored apart
// and joins C in AVX-512, with its factors.

#include "src/cpu/product/amx_tiles.h"
#include "src/cpu/product/bf16_pairs.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/cpu/block_sizes.h"

#define ISENTROPE_AVX512 __attribute__((target("avx512f")))

namespace isentrope {
namespace {

using amx::kSide;
using Product = TileProduct<Pair>;

constexpr std::size_t kBlock = 2 * kSide;  // rows and columns of a block of C, a panel's width
constexpr std::size_t kPairs = kBlock;     // from one row to the next in a panel of pairs

// --- whether this CPU and this process have them

bool cpu_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTiles) == 0)
    return false;
  // Palette 1: eight tiles or more, of 16 rows of 64 bytes.
  return __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && (b & 0xffff) == 4 * kSide && b >> 16 >= 8 &&
         (c & 0xffff) == kSide;
}

bool system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1u << 27, kTileStates = 3u << 17;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsXsave) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileStates) == kTileStates;
}

// Linux gives a process room for tiles when it asks; children and threads have it then, too.
bool process_may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

const char* why_not() {
  static const char* const reason = []() -> const char* {
    if (!cpu_has_tiles()) return "this CPU does not have it";
    if (!__builtin_cpu_supports("avx512bf16")) return "AVX-512 BF16, which rounds for it, is hidden";
    if (!system_saves_tiles()) return "the operating system does not save its tiles";
    if (!process_may_use_tiles()) return "the operating system refused the process its tiles";
    return nullptr;
  }();
  return reason;
}

// --- products

// Tiles of A, `rows` rows: tile (t, step) begins at data + t * tile + step / 2 * two_steps +
// step % 2 * one_step, and its rows are `stride` apart, all in pairs.
struct LeftTiles {
  const Pair* data;
  std::size_t rows, stride, tile, one_step, two_steps;
};
// Tiles of B, 2 side by side: tile (step, t) begins at data + step * kSide * stride + t * kSide.
struct RightTiles {
  const Pair* data;
  std::size_t stride;
};
// Where a block belongs in C: tile (i, j) begins at data + i * down + j * across, in floats.
struct BlockOfC {
  float* data;
  std::size_t stride, down, across;
  const float* of_rows = nullptr;     // factors of the block's rows
  const float* of_columns = nullptr;  // and of its columns
};

// C = (A B) times its row's factor, or its column's; C times its column's factor + A B; C + A B.
enum class Into { times_row, times_column, scale, add };

// The caller's rows end where they end: those that a tile lacks are 0.
template <int kTile>
ISENTROPE_AVX512 void load_left(const LeftTiles& a, std::size_t tile, std::size_t step) {
  const Pair* from = a.data + tile * a.tile + step / 2 * a.two_steps + step % 2 * a.one_step;
  const std::size_t rows = std::min(kSide, a.rows - tile * kSide);
  if (rows == kSide) return amx::load<kTile>(from, a.stride * sizeof(Pair));
  alignas(64) Pair whole[kSide * kSide];
  for (std::size_t r = 0; r < kSide; ++r) {
    const __m512i row = r < rows ? _mm512_loadu_si512(from + r * a.stride) : _mm512_setzero_si512();
    _mm512_store_si512(whole + r * kSide, row);
  }
  amx::load<kTile>(whole, kSide * sizeof(Pair));
}

template <int kTile>
void load_right(const RightTiles& b, std::size_t step, std::size_t tile) {
  amx::load<kTile>(b.data + step * kSide * b.stride + tile * kSide, b.stride * sizeof(Pair));
}

// block = A B, of one or two tiles of rows. Tiles 0 to 3 are C's, 4 and 5 A's, 6 and 7 B's.
template <bool kTwo>
ISENTROPE_AVX512 void multiply_block(const LeftTiles& a, const RightTiles& b, std::size_t steps,
                                     float* block) {
  amx::zero<0>(), amx::zero<1>();
  if constexpr (kTwo) amx::zero<2>(), amx::zero<3>();
  for (std::size_t step = 0; step < steps; ++step) {
    load_right<6>(b, step, 0);
    load_left<4>(a, 0, step);
    amx::multiply_pairs<0, 4, 6>();
    load_right<7>(b, step, 1);
    amx::multiply_pairs<1, 4, 7>();
    if constexpr (kTwo) {
      load_left<5>(a, 1, step);
      amx::multiply_pairs<2, 5, 6>();
      amx::multiply_pairs<3, 5, 7>();
    }
  }
  constexpr std::size_t kStride = kBlock * sizeof(float);
  amx::store<0>(block, kStride), amx::store<1>(block + kSide, kStride);
  if constexpr (kTwo) {
    amx::store<2>(block + kSide * kBlock, kStride);
    amx::store<3>(block + kSide * kBlock + kSide, kStride);
  }
}

template <Into kInto>
ISENTROPE_AVX512 void add_block(const float* block, std::size_t rows, const BlockOfC& c) {
  [[maybe_unused]] __m512 by[2];
  if constexpr (kInto == Into::times_column || kInto == Into::scale) {
    by[0] = _mm512_loadu_ps(c.of_columns);
    by[1] = _mm512_loadu_ps(c.of_columns + kSide);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    float* to = c.data + r / kSide * c.down + r % kSide * c.stride;
    if constexpr (kInto == Into::times_row) by[0] = by[1] = _mm512_set1_ps(c.of_rows[r]);
#pragma GCC unroll 2
    for (std::size_t j = 0; j < 2; ++j) {
      __m512 x = _mm512_load_ps(block + r * kBlock + j * kSide);
      float* at = to + j * c.across;
      if constexpr (kInto == Into::add) {
        x = _mm512_add_ps(_mm512_load_ps(at), x);
      } else if constexpr (kInto == Into::scale) {
        x = _mm512_fmadd_ps(by[j], _mm512_load_ps(at), x);
      } else {
        x = _mm512_mul_ps(by[j], x);
      }
      _mm512_store_ps(at, x);
    }
  }
}

template <Into kInto>
void multiply_into(const LeftTiles& a, const RightTiles& b, std::size_t depth, const BlockOfC& c) {
  alignas(64) float block[kBlock * kBlock];
  const std::size_t steps = (depth + kSide - 1) / kSide;
  (a.rows > kSide ? multiply_block<true> : multiply_block<false>)(a, b, steps, block);
  add_block<kInto>(block, std::min(a.rows, kBlock), c);
}

// A by rows, where they lie or in panels `a_panel` apart; B in panels.
template <Into kInto>
void multiply_rows(const Product& t, std::size_t a_stride, std::size_t two_steps) {
  for (std::size_t column = 0; column < t.columns; column += kBlock) {
    for (std::size_t row = 0; row < t.rows; row += kBlock) {
      const LeftTiles a{t.a + row * a_stride, t.rows - row, a_stride, kSide * a_stride, kSide,
                        two_steps};
      const RightTiles b{t.b + column / kBlock * t.b_panel, kPairs};
      BlockOfC c{t.c + row * t.c_stride + column, t.c_stride, kSide * t.c_stride, kSide};
      if constexpr (kInto == Into::times_row) c.of_rows = t.factors + row;
      if constexpr (kInto == Into::times_column) c.of_columns = t.factors + column;
      multiply_into<kInto>(a, b, t.depth, c);
    }
  }
}

void multiply_packed(const Product& t) { multiply_rows<Into::times_row>(t, kPairs, t.a_panel); }
void multiply_keys(const Product& t) {
  multiply_rows<Into::times_column>(t, t.a_stride, 2 * kSide);
}
void add_rows(const Product& t) {
  multiply_rows<Into::add>(t, kGradientKeys / 2, 2 * kSide);
}

// The left tiles of a turned panel.
LeftTiles turned(const Pair* panel, std::size_t rows) {
  return {panel, rows, kPairs, kSide, kSide * kPairs, 2 * kSide * kPairs};
}

void add_weighted(const Product& t) {
  for (std::size_t column = 0; column < t.columns; column += kBlock) {
    multiply_into<Into::scale>(turned(t.a, t.rows),
                               {t.b + column / kBlock * t.b_panel, kPairs}, t.depth,
                               {t.c + column, t.c_stride, kSide * t.c_stride, kSide, nullptr,
                                t.factors + column});
  }
}

// C^T += B^T A: B is turned when it is packed, which is seldom, where A would have to be turned for
// each tile. So the sums are turned as well, block by block.
void add_transposed(const Product& t) {
  for (std::size_t column = 0; column < t.columns; column += kBlock) {
    for (std::size_t row = 0; row < t.rows; row += kBlock) {
      multiply_into<Into::add>(turned(t.b + column / kBlock * t.b_panel, kBlock),
                               {t.a + row, kGradientKeys}, t.depth,
                               {t.c + row * t.c_stride + column, t.c_stride, kSide,
                                kSide * t.c_stride});
    }
  }
}

// --- around the products

void begin() { amx::configure(amx::Configuration()); }
void end() { amx::release(); }

// Pairs of rows that a step of the depth lacks are 0.
Pair* round_tile(float* tile, std::size_t rows) {
  Pair* const pairs = avx512_pair_kernels()->round_tile(tile, rows);
  const std::size_t count = (rows + 1) / 2, whole = (count + kSide - 1) / kSide * kSide;
  std::fill_n(pairs + count * kPairs, (whole - count) * kPairs, Pair{});
  return pairs;
}

std::size_t run_dot_products(std::size_t times) {
  alignas(64) std::uint16_t halves[kSide * kBlock];
  std::fill_n(halves, kSide * kBlock, std::uint16_t{0x3f00});
  begin();
  amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>();
  amx::load<4>(halves, 64), amx::load<6>(halves, 64);
  for (std::size_t i = 0; i < times; ++i) {
    amx::multiply_pairs<0, 4, 6>(), amx::multiply_pairs<1, 4, 6>();
    amx::multiply_pairs<2, 4, 6>(), amx::multiply_pairs<3, 4, 6>();
  }
  end();
  return 4 * kSide * kSide * kBlock * 2;
}

}  // namespace

const PairKernels* amx_pair_kernels() {
  if (!avx512_pair_kernels()) return nullptr;
  static const PairKernels kernels = [] {
    PairKernels amx = *avx512_pair_kernels();  // whose roundings serve here
    amx.name = "AMX";
    amx.why_not = why_not;
    amx.rows = kBlock;
    amx.depth = kSide;
    amx.is_turned = true;
    amx.begin = begin;
    amx.end = end;
    amx.multiply_packed = multiply_packed;
    amx.multiply_rows = multiply_keys;
    amx.add_weighted = add_weighted;
    amx.add_rows = add_rows;
    amx.add_transposed = add_transposed;
    amx.round_tile = round_tile;
    amx.run_dot_products = run_dot_products;
    return amx;
  }();
  return &kernels;
}

}  // namespace isentrope

#else

namespace isentrope {

const PairKernels* amx_pair_kernels() { return nullptr; }

}  // namespace isentrope

#endif
