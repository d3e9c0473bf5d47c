// Products of bf16 tiles by the dot products of AVX-512 BF16, which Highway does not have: twice
// the multiplications of f32 a cycle. Behind the tile interface of tile_product-inl.h, with units
// of two bf16 numbers, neighbours along the depth, in place of floats.
//
// Products of two bf16 numbers are exact in f32, so scores are as good as the f32 product's. The
// instruction takes denormals for 0 and a sum may overflow before lambda scales it:
// is_fit_for_units() says which rows are fit for it. Weights and gradients of logits are rounded to
// bf16, by at most one part in 2^8.
#pragma once

#include <cstddef>

namespace isentrope::bf16 {

inline constexpr std::size_t kRows = 12, kColumns = 32;  // of the register tile

// Whether this CPU has them.
[[nodiscard]] bool is_supported();

// As TileProduct; rows are rounded up to 4, columns to kColumns. Units lie in arrays of floats.
struct Product {
  std::size_t rows, columns;
  std::size_t depth;  // in units
  const float* a;
  std::size_t a_stride = 0;
  std::size_t a_panel = 0;
  const float* b;  // panels of depth x kColumns units
  std::size_t b_panel;
  float* c;
  std::size_t c_stride;
  const float* factors = nullptr;  // one a row, or a column
};

// C = factor (A B), with a factor for each row of C. A: panels of rows x kColumns units.
void multiply_rows(const Product& product);

// C = (A B) factor, with one for each column of C. A: rows as they lie in memory, a_stride units
// apart.
void multiply_columns(const Product& product);

// C = C factor + A^T B, with one for each column of C. A: one panel of depth x kColumns units.
void add_weighted(const Product& product);

// C += A B. A: the first units of rows that are kGradientKeys / 2 floats apart.
void add_rows(const Product& product);

// C += A^T B. A: rows of units along C's rows, kGradientKeys floats apart.
void add_transposed(const Product& product);

// Rounds a row, a multiple of 32 numbers, to units of neighbours. They may take the row's place.
void round_row(const float* row, std::size_t count, float* units);

// Rounds rows of kColumns numbers to units of two neighbouring rows. They may take the rows' place;
// an odd last row's partner is 0.
void round_rows(const float* tile, std::size_t rows, float* units);

// Rounds two rows, times a factor each, to units of what lies side by side. 0 stays 0, whatever the
// factor.
void round_row_pair(const float* first, const float* second, const float factors[2],
                    std::size_t count, float* units);

}  // namespace isentrope::bf16
