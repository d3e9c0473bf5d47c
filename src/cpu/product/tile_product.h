// TileProduct: one product of two matrices, C = A B into tiles of floats, for whichever arithmetic
// reads A and B.
#pragma once

#include <cstddef>

namespace isentrope {

// Element is what is multiplied at once: a float, or a pair of bf16 numbers. C[rows][columns] is
// computed over as many panels of B as the columns need. A register tile rounds rows and columns
// up, so A, B and C have room for that many.
template <typename Element>
struct TileProduct {
  std::size_t rows, columns, depth;
  const Element* a;
  std::size_t a_stride = 0;  // of rows where they lie: from one row in memory to the next
  std::size_t a_panel = 0;   // of packed rows: from one panel of the depth to the next
  const Element* b;          // panel p at b + p * b_panel: depth rows of a panel's width
  std::size_t b_panel;
  float* c;
  std::size_t c_stride;
  const float* factors = nullptr;  // one a row or a column, where a product takes any
};

}  // namespace isentrope
