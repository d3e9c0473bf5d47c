// Writes rows of a tensor one number at a time, for any type and strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isentrope/attention.h"

namespace isentrope {

// Writes row[0, columns) = factor * from[0, columns) of a tensor, rounded to its type.
inline void write_row(const Tensor& to, std::int64_t batch, std::int64_t head, std::int64_t row,
                      float factor, const float* from) {
  const std::int64_t offset = batch * to.strides[0] + head * to.strides[1] + row * to.strides[2];
  const auto write = [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for (std::int64_t c = 0; c < to.extents[3]; ++c) {
      data[offset + c * to.strides[3]] = from_float<T>(factor * from[c]);
    }
  };
  switch (to.type) {
    case DType::f32:
      return write(static_cast<float*>(to.data));
    case DType::bf16:
      return write(static_cast<BFloat16*>(to.data));
    case DType::f16:
      return write(static_cast<Float16*>(to.data));
    case DType::i8:  // not a type of results
      return;
  }
}

}  // namespace isentrope
