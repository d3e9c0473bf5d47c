// Reads and writes rows of a tensor one number at a time, for any type and strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isentrope/attention.h"

namespace isentrope {

// Returns number `offset` of an array. Slow, one switch a number: used for results of single rows
// and rare non-finite numbers. Kernels that read whole rows dispatch on the type first.
[[nodiscard]] inline float float_at(DType type, const void* data, std::int64_t offset) {
  switch (type) {
    case DType::f32:
      return static_cast<const float*>(data)[offset];
    case DType::bf16:
      return to_float(static_cast<const BFloat16*>(data)[offset]);
    case DType::f16:
      return to_float(static_cast<const Float16*>(data)[offset]);
    case DType::i8:
      return static_cast<const std::int8_t*>(data)[offset];
  }
  return 0;
}

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
