// Matrix: one head of a 4-D view.
#pragma once

#include <cstdint>

#include "isentrope/view.h"

namespace isentrope {

struct Matrix {
  const float* data;
  std::int64_t columns, row_stride, column_stride;

  [[nodiscard]] const float* row(std::int64_t index) const { return data + index * row_stride; }
};

// Head `head` of batch times heads, counted row-major.
template <typename T>
[[nodiscard]] Matrix matrix_of(const View<T, 4>& view, std::int64_t head) {
  const std::int64_t batch = head / view.extents[1];
  const T* data = view.data + batch * view.strides[0] + head % view.extents[1] * view.strides[1];
  return {data, view.extents[3], view.strides[2], view.strides[3]};
}

// Element (batch, head, row) of a row statistic.
template <typename T>
[[nodiscard]] T& row_of(const View<T, 3>& view, std::int64_t head, std::int64_t row) {
  return view(head / view.extents[1], head % view.extents[1], row);
}

}  // namespace isentrope
