// TileProduct: one product C = A B into tiles of floats, for either arithmetic.
#pragma once

#include <cstddef>

namespace isentrope {

// Element is multiplied at once: a float, or a pair of bf16 numbers. C[rows][columns] is computed
// over as many panels of B as the columns need. Register tiles round rows and columns up, so A, B
// and C need room for that.
template <typename Element>
struct TileProduct {
  std::size_t rows, columns, depth;
  const Element* a;
  std::size_t a_stride = 0;  // unpacked rows: from one row in memory to the next
  std::size_t a_panel = 0;   // packed rows: from one panel of the depth to the next
  const Element* b;          // panel p at b + p * b_panel: depth rows of a panel's width
  std::size_t b_panel;
  float* c;
  std::size_t c_stride;
  const float* factors = nullptr;  // one for each row or column, if the product uses them
};

}  // namespace isentrope
