// Keys and values of a cache in 8 bits, with a scale for each row or for each group of its columns.
//
//   x[c] ~ codes[c] * scales[c / group]        group = columns / extents[3] of scales
//
// A decode step reads half the bytes of bf16. The error of a number is at most e = (largest
// magnitude of its group) / 254. A logit changes by at most lambda e sum |q_c|
// (docs/contributors/numerics.md).
#pragma once

#include <cstdint>

#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// rows: f32, bf16 or f16 [outer, heads, rows, columns] with any strides: keys, values, or pages of
// either; codes: the same shape; scales: [outer, heads, rows, groups], where groups >= 1 divides
// columns. Codes are in -127 ... 127, to the nearest, ties to even. A group with NaN or inf has
// the scale NaN and is read as NaN; numbers below 2^-127 become 0. Throws Error before anything is
// written if an argument is invalid, or if codes or scales overlap another array.
void quantize(const ConstTensor& rows, const View<std::int8_t, 4>& codes,
              const View<float, 4>& scales);

}  // namespace isentrope
