// Keys and values of a cache in 8 bits, with a scale for each row or for each group of its columns.
//
//   x[c] ~ codes[c] * scales[c / group]        group = columns / extents[3] of scales
//
// A decode step reads half the bytes of bf16. The error of a number is at most e = (largest
// magnitude of its group) / 254. A logit changes by at most lambda e sum_c |q_c|
// (docs/contributors/numerics.md).
#pragma once

#include <cstdint>

#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// Writes rows as 8-bit codes, and one scale for each group of columns.
//
//   rows    f32, bf16 or f16 [outer, heads, rows, columns], any strides: keys, values, or their pages
//   codes   [outer, heads, rows, columns], -127 ... 127: to the nearest, ties to even
//   scales  [outer, heads, rows, groups], where groups >= 1 divides columns
//
// A group that contains NaN or Inf has the scale NaN and is read as NaN. Scales are at least
// 2^-126, so numbers of at most 2^-127 may become 0. Throws Error before anything is written if an
// argument is invalid, or if codes or scales overlap another array.
void quantize(const ConstTensor& rows, const View<std::int8_t, 4>& codes,
              const View<float, 4>& scales);

}  // namespace isentrope
