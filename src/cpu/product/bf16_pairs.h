// Products of bf16 tiles by the dot products of AVX-512 BF16, which Highway does not have: twice
// the multiplications of f32 a cycle. Behind the tile interface of f32-inl.h, with pairs
// of two bf16 numbers, neighbours along the depth, in place of floats.
//
// Products of two bf16 numbers are exact in f32, so scores are as good as the f32 product's. The
// instruction takes denormals for 0 and a sum may overflow before lambda scales it:
// fits_bf16_pairs() says which rows are fit for it. Weights and gradients of logits are rounded to
// bf16, by at most one part in 2^8.
#pragma once

#include <cstddef>

namespace isentrope::bf16 {

inline constexpr std::size_t kRows = 12, kColumns = 32;  // of the register tile

// Whether this CPU has them.
[[nodiscard]] bool is_supported();

// As TileProduct; rows are rounded up to 4, columns to kColumns. Pairs lie in arrays of floats.
struct Product {
  std::size_t rows, columns;
  std::size_t depth;  // in pairs
  const float* a;
  std::size_t a_stride = 0;
  std::size_t a_panel = 0;
  const float* b;  // panels of depth x kColumns pairs
  std::size_t b_panel;
  float* c;
  std::size_t c_stride;
  const float* factors = nullptr;  // one a row, or a column
};

// C = factor (A B), with a factor for each row of C. A: panels of rows x kColumns pairs.
void multiply_rows(const Product& product);

// C = (A B) factor, with one for each column of C. A: rows as they lie in memory, a_stride pairs
// apart.
void multiply_columns(const Product& product);

// C = C factor + A^T B, with one for each column of C. A: one panel of depth x kColumns pairs.
void add_weighted(const Product& product);

// C += A B. A: the first pairs of rows that are kGradientKeys / 2 floats apart.
void add_rows(const Product& product);

// C += A^T B. A: rows of pairs along C's rows, kGradientKeys floats apart.
void add_transposed(const Product& product);

// Rounds a row, a multiple of 32 numbers, to pairs of neighbours. They may take the row's place.
void round_column_pairs(const float* row, std::size_t count, float* pairs);

// Rounds rows of kColumns numbers to pairs of two neighbouring rows. They may take the rows' place;
// an odd last row's partner is 0.
void round_row_pairs(const float* tile, std::size_t rows, float* pairs);

// Rounds two rows, times a factor each, to pairs of what lies side by side. 0 stays 0, whatever the
// factor.
void round_scaled_row_pairs(const float* first, const float* second, const float factors[2],
                            std::size_t count, float* pairs);

}  // namespace isentrope::bf16
