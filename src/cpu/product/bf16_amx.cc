// The dot products of AMX: 16 rows by 16 columns and 16 pairs deep in one instruction, in 16
// cycles.
//
// Every product goes over blocks of 2 x 2 tiles of C, which four tiles of A and B feed for every
// step of the depth: 32 cycles of loading beside 64 of multiplying. A block is stored apart and
// joins C in AVX-512, with its factors, while the next one is multiplied. What a forward pass asks
// for is put off and multiplied, step by step, while vectors compute a softmax.

#include "src/cpu/product/amx_tiles.h"
#include "src/cpu/product/bf16_pairs.h"

#if ISENTROPE_HAS_AMX_TILES

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "src/cpu/block_sizes.h"

#define ISENTROPE_AVX512 __attribute__((target("avx512f")))

namespace isentrope {
namespace {

using amx::kSide;
using Product = TileProduct<Pair>;

constexpr std::size_t kBlock = 2 * kSide;  // rows and columns of a block of C, a panel's width
constexpr std::size_t kPairs = kBlock;     // from one row to the next in a panel of pairs

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
struct Block {
  LeftTiles a;
  RightTiles b;
  BlockOfC c;
};

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

// Tiles 0 to 3 are C's, 4 and 5 A's, 6 and 7 B's. The lower two of C wait where A has no second.
void clear_block() { amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>(); }

void multiply_step(const Block& of, std::size_t step) {
  load_right<6>(of.b, step, 0);
  load_left<4>(of.a, 0, step);
  amx::multiply_pairs<0, 4, 6>();
  load_right<7>(of.b, step, 1);
  amx::multiply_pairs<1, 4, 7>();
  if (of.a.rows <= kSide) return;
  load_left<5>(of.a, 1, step);
  amx::multiply_pairs<2, 5, 6>();
  amx::multiply_pairs<3, 5, 7>();
}

void store_block(float* to) {
  constexpr std::size_t kStride = kBlock * sizeof(float);
  amx::store<0>(to, kStride), amx::store<1>(to + kSide, kStride);
  amx::store<2>(to + kSide * kBlock, kStride), amx::store<3>(to + kSide * kBlock + kSide, kStride);
}

// C = (A B) times its row's factor, or its column's; C times its column's factor + A B; C + A B.
enum class Into { times_row, times_column, scale, add };

// Rows first ... last - 1 of a block join C.
template <Into kInto>
ISENTROPE_AVX512 void join_rows(const float* block, std::size_t first, std::size_t last,
                                const BlockOfC& c) {
  [[maybe_unused]] __m512 by[2];
  if constexpr (kInto == Into::times_column || kInto == Into::scale) {
    by[0] = _mm512_loadu_ps(c.of_columns);
    by[1] = _mm512_loadu_ps(c.of_columns + kSide);
  }
  for (std::size_t r = first; r < last; ++r) {
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

// A product, block by block: its C is so many blocks.
struct Job {
  Product product;
  Block (*block_of)(const Product& product, std::size_t index);
  void (*join)(const float* block, std::size_t first, std::size_t last, const BlockOfC& c);
  std::size_t blocks, steps;
};

// The products of a thread that were asked for and not yet computed, in their order.
class Jobs {
 public:
  void add(const Job& job) {
    if (count_ == kMost) complete();
    jobs_[(first_ + count_++) % kMost] = job;
  }

  // A step of the depth of one block, if there is any.
  void advance() {
    if (count_ == 0) return;
    const Job& job = jobs_[first_];
    if (step_ == 0) {
      block_ = job.block_of(job.product, index_);
      clear_block();
    }
    multiply_step(block_, step_);
    join_before((kBlock + job.steps - 1) / job.steps);  // all of it by the last step
    if (++step_ < job.steps) return;
    other_ ^= 1;
    store_block(sums_[other_]);
    before_ = {block_.c, job.join, 0, std::min(block_.a.rows, kBlock)};
    step_ = 0;
    if (++index_ < job.blocks) return;
    index_ = 0;
    first_ = (first_ + 1) % kMost;
    --count_;
  }

  void complete() {
    while (count_ > 0) advance();
    join_before(kBlock);
  }

 private:
  static constexpr std::size_t kMost = 32;
  // The block that was multiplied last, and how many of its rows have joined C.
  struct Before {
    BlockOfC c{};
    decltype(Job::join) join = nullptr;
    std::size_t joined = 0, rows = 0;
  };

  void join_before(std::size_t rows) {
    const std::size_t last = std::min(before_.rows, before_.joined + rows);
    if (last == before_.joined) return;
    before_.join(sums_[other_], before_.joined, last, before_.c);
    before_.joined = last;
  }

  alignas(64) float sums_[2][kBlock * kBlock] = {};
  std::size_t other_ = 0;  // which of them is that of `before_`
  Before before_{};
  std::array<Job, kMost> jobs_{};
  std::size_t first_ = 0, count_ = 0;
  Block block_{};  // of the first job, at block index_ and step step_
  std::size_t index_ = 0, step_ = 0;
};

Jobs& jobs() {
  thread_local constinit Jobs of_thread;
  return of_thread;
}
void advance() { jobs().advance(); }
void complete() { jobs().complete(); }

// A by rows `a_stride` apart, whose steps of the depth lie side by side, two in a panel where there
// are panels; B in panels. Blocks of a panel of B come one after the other.
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

// The left tiles of a turned panel.
LeftTiles turned(const Pair* panel, std::size_t rows) {
  return {panel, rows, kPairs, kSide, kSide * kPairs, 2 * kSide * kPairs};
}

Block block_of_values(const Product& t, std::size_t index) {
  const std::size_t column = index * kBlock;
  return {turned(t.a, t.rows),
          {t.b + index * t.b_panel, kPairs},
          {t.c + column, t.c_stride, kSide * t.c_stride, kSide, nullptr, t.factors + column}};
}

// C^T += B^T A: B is turned when it is packed, which is seldom, where A would have to be turned for
// each tile. So the sums are turned as well, block by block.
Block block_of_transposed(const Product& t, std::size_t index) {
  const std::size_t down = (t.rows + kBlock - 1) / kBlock;
  const std::size_t row = index % down * kBlock, panel = index / down;
  return {turned(t.b + panel * t.b_panel, kBlock),
          {t.a + row, kGradientKeys},
          {t.c + row * t.c_stride + panel * kBlock, t.c_stride, kSide, kSide * t.c_stride}};
}

template <Into kInto, Block (*kBlockOf)(const Product&, std::size_t), bool kPutOff>
void multiply(const Product& t) {
  const std::size_t down = kInto == Into::scale ? 1 : (t.rows + kBlock - 1) / kBlock;
  const std::size_t blocks = down * ((t.columns + kBlock - 1) / kBlock), steps = t.depth / kSide;
  if (blocks * steps > 0) jobs().add({t, kBlockOf, join_rows<kInto>, blocks, steps});
  if constexpr (!kPutOff) complete();
}

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
    amx.why_not = amx::why_not;
    amx.rows = kBlock;
    amx.depth = kSide;
    amx.is_turned = true;
    amx.begin = begin;
    amx.end = end;
    amx.advance = advance;
    amx.complete = complete;
    amx.multiply_packed = multiply<Into::times_row, block_of_packed, false>;
    amx.multiply_rows = multiply<Into::times_column, block_of_keys, true>;
    amx.add_weighted = multiply<Into::scale, block_of_values, true>;
    amx.add_rows = multiply<Into::add, block_of_dq, false>;
    amx.add_transposed = multiply<Into::add, block_of_transposed, false>;
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
