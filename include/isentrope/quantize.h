// Keys and values of a cache in 8 bits, with a scale for each row or for each few of its columns.
//
//   x[c] ~ codes[c] * scales[c / group]        group = columns / extents[3] of scales
//
// A decode step reads half of what bf16 takes. One number is off by at most its group's largest
// magnitude / 254, which moves a logit by lambda times the sum of |q_c| times that
// (docs/contributors/numerics.md).
#pragma once

#include <cstdint>

#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// rows: f32, bf16 or f16 [outer, heads, rows, columns] of any strides: keys, values, or pages of
// either; codes: the same shape; scales: [outer, heads, rows, groups], where groups >= 1 divides
// columns. Codes are in -127 ... 127, to the nearest, ties to even. A group that holds NaN or inf
// has the scale NaN, and so is NaN; numbers below 2^-127 become 0. Throws Error before anything is
// written when an argument does not fit, or when codes or scales overlap another array.
void quantize(const ConstTensor& rows, const View<std::int8_t, 4>& codes,
              const View<float, 4>& scales);

}  // namespace isentrope
