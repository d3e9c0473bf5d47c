// Products of pairs of bf16 or f16 numbers, neighbours along the depth, by instructions that
// Highway does not have. CPUs that multiply f32 faster take the products of f32 instead.
//
// Products of two such numbers are exact in f32, so scores are as exact as with f32. bf16 products
// flush denormals, and a sum may overflow before lambda scales it: Pairs::fits() checks both.
// Weights and gradients of logits are rounded to the type, by at most one part in 2^8 or 2^11.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "src/cpu/product/operand.h"
#include "src/cpu/product/tile_product.h"

namespace isentrope {

// Products of one instruction set: one file with a constant of this type, listed in
// pair_kernels.cc. Tiles of C are `rows` x `columns`. A product rounds its rows up to 4, its
// columns to `columns` and its depth to `depth` pairs, which are 0 past the end. AMX writes C of
// multiply_packed and multiply_rows in whole tiles of 16 rows.
struct PairKernels {
  using Product = void (*)(const TileProduct<Pair>&);

  const char* name;
  const char* (*why_not)();  // why this CPU cannot run it; null if it can
  // Why products of f32 are faster on this CPU; returns null if they are not.
  const char* (*why_slow)() = nullptr;
  std::size_t rows, columns;
  std::size_t depth = 1;
  DType type = DType::bf16;  // of the numbers; f16 is for the forward pass only
  // Whether A of add_weighted and B of add_transposed are transposed in place, in blocks of 16 x 16
  // pairs of a panel. The sums of add_transposed are then left transposed, too.
  bool is_turned = false;
  // Rearranges packed panels in place for B of multiply_packed and multiply_rows; may be null.
  void (*arrange)(Pair* panels, std::size_t pairs) = nullptr;
  // Rows of a decode step from which these are faster than streams of f32, at 128 keys and more.
  std::size_t decode_rows = std::numeric_limits<std::size_t>::max();
  // Called before and after all products of a task; null if not needed.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;

  // C = factor (A B), one factor for each row of C. A: panels of rows x `columns` pairs.
  Product multiply_packed = nullptr;
  // C = (A B) factor, one for each column of C. A: rows in place, a_stride pairs apart.
  Product multiply_rows;
  // C = C factor + A^T B, one for each column of C. A: one panel of depth x `columns` pairs.
  Product add_weighted;
  // C += A B. A: the first pairs of rows that are kGradientKeys / 2 pairs apart.
  Product add_rows = nullptr;
  // C += A^T B. A: rows of pairs along C's rows, kGradientKeys pairs apart.
  Product add_transposed = nullptr;

  // Rounds a row, a multiple of 32 numbers, to pairs of neighbours.
  void (*round_row)(const float* row, std::size_t count, Pair* to) = nullptr;
  // Rounds rows of `columns` weights to pairs of two neighbouring rows, in place; an odd last row
  // is paired with 0. They may be scaled by a factor that add_weighted divides by.
  Pair* (*round_tile)(float* tile, std::size_t rows);
  // Rounds two rows, each times a factor, to pairs of their lanes. 0 stays 0, whatever the factor.
  void (*round_two_rows)(const float* first, const float* second, const float factors[2],
                         std::size_t count, Pair* to) = nullptr;

  // Runs `times` rounds of independent dot products in registers, the peak of the instruction set.
  // Returns the multiplications and additions of a round.
  std::size_t (*run_dot_products)(std::size_t times);
};

// Returns the best kernels of this CPU for the type; null if it has none that are faster than f32.
[[nodiscard]] const PairKernels* pair_kernels(DType type);
// Uses these kernels from the next call on; null for none. Tests must check that the CPU runs them.
void use_pair_kernels(DType type, const PairKernels* kernels);
// Returns the vector bytes of targets that have pair kernels on some CPU of this architecture.
[[nodiscard]] std::size_t bytes_of_pair_vectors();
// Returns a text that names the kernels in use and why better ones are not.
[[nodiscard]] std::string explain_pair_kernels(DType type);

// AMX, for bf16 or f16; null if the compiler or the operating system does not support it.
[[nodiscard]] const PairKernels* amx_pair_kernels(DType type);

// AVX-512 BF16; null if the compiler does not support it.
[[nodiscard]] const PairKernels* avx512_pair_kernels();

// BFMMLA; null except on 64-bit Arm.
[[nodiscard]] const PairKernels* neon_pair_kernels();

}  // namespace isentrope
