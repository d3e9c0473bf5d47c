// Products of pairs of bf16 or f16 numbers, neighbours along the depth, by instructions that
// Highway does not have: twice the multiplications of f32 a cycle and more.
//
// Products of two such numbers are exact in f32, so scores are as good as the f32 product's. Those
// of bf16 take denormals for 0, and a sum may overflow before lambda scales it: Pairs::fits() says
// which rows they serve. Weights and gradients of logits are rounded to the type, by at most one
// part in 2^8 or 2^11.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "src/cpu/product/operand.h"
#include "src/cpu/product/tile_product.h"

namespace isentrope {

// One instruction set's products: a file of its own with a constant of this type, and a line in
// pair_kernels.cc. Tiles of C are `rows` x `columns`; a product rounds its rows up to 4, its
// columns to `columns` and its depth to `depth` pairs, which are 0 beyond the operands' own. AMX
// writes C of multiply_packed and multiply_rows in whole tiles of 16 rows.
struct PairKernels {
  using Product = void (*)(const TileProduct<Pair>&);

  const char* name;
  const char* (*why_not)();  // why this CPU does not serve; null where it does
  std::size_t rows, columns;
  std::size_t depth = 1;
  DType type = DType::bf16;  // of the numbers; f16 is served in the forward pass alone
  // Whether A of add_weighted and B of add_transposed come turned: each 16 x 16 pairs of a panel
  // transposed where they stand. The sums of add_transposed are then left turned, too.
  bool is_turned = false;
  // Changes packed panels, in place and each for itself, to what B of multiply_packed and
  // multiply_rows wants; null where it is as it was packed.
  void (*arrange)(Pair* panels, std::size_t pairs) = nullptr;
  // The rows of a decode step from which these products overtake streams of f32, in a cache of 128
  // keys and more.
  std::size_t decode_rows = std::numeric_limits<std::size_t>::max();
  // Around all products of a thread's task; null where they need nothing.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;

  // C = factor (A B), a factor for each row of C. A: panels of rows x `columns` pairs.
  Product multiply_packed = nullptr;
  // C = (A B) factor, one for each column of C. A: rows where they lie, a_stride pairs apart.
  Product multiply_rows;
  // C = C factor + A^T B, one for each column of C. A: one panel of depth x `columns` pairs.
  Product add_weighted;
  // C += A B. A: the first pairs of rows that are kGradientKeys / 2 pairs apart.
  Product add_rows = nullptr;
  // C += A^T B. A: rows of pairs along C's rows, kGradientKeys pairs apart.
  Product add_transposed = nullptr;

  // Rounds a row, a multiple of 32 numbers, to pairs of neighbours.
  void (*round_row)(const float* row, std::size_t count, Pair* to) = nullptr;
  // Rounds rows of `columns` weights to pairs of two neighbouring rows, which take their place; an
  // odd last row's partner is 0. They may be larger by a factor that add_weighted takes off.
  Pair* (*round_tile)(float* tile, std::size_t rows);
  // Rounds two rows, times a factor each, to pairs of what lies side by side. 0 stays 0, whatever
  // the factor.
  void (*round_two_rows)(const float* first, const float* second, const float factors[2],
                         std::size_t count, Pair* to) = nullptr;

  // Runs `times` rounds of independent dot products in registers, which is the most that an
  // instruction set has to give. Returns the multiplications and additions of a round.
  std::size_t (*run_dot_products)(std::size_t times);
};

// The best of this CPU for numbers of the type; null where it has none.
[[nodiscard]] const PairKernels* pair_kernels(DType type);
// Takes these instead from now on, null for none, in calls that begin after it: for tests and
// measurements, which answer for it that they run here.
void use_pair_kernels(DType type, const PairKernels* kernels);
// Of the targets that have any on some CPU of this kind.
[[nodiscard]] std::size_t bytes_of_pair_vectors();
// Which they are and why no better ones, in words.
[[nodiscard]] std::string explain_pair_kernels(DType type);

// AMX, of bf16 or f16; null where the compiler or the operating system does not know it.
[[nodiscard]] const PairKernels* amx_pair_kernels(DType type);

// AVX-512 BF16; null where the compiler does not know it.
[[nodiscard]] const PairKernels* avx512_pair_kernels();

// BFMMLA; null elsewhere than on 64-bit Arm.
[[nodiscard]] const PairKernels* neon_pair_kernels();

}  // namespace isentrope
