// RowList: some rows of a tensor, wherever they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "isentrope/attention.h"

namespace isentrope {

// Rows are found through one pointer each: those of several heads, of a strided view or of a paged
// cache then look alike to whoever packs them.
struct RowList {
  std::vector<const std::byte*> rows;
  std::int64_t columns = 0, column_stride = 0;
  DType type = DType::f32;

  explicit RowList(const ConstTensor& tensor)
      : columns(tensor.extents[3]), column_stride(tensor.strides[3]), type(tensor.type) {}

  // Appends rows begin ... end - 1 of one head.
  void add(const ConstTensor& tensor, std::int64_t batch, std::int64_t head, std::int64_t begin,
           std::int64_t end) {
    column_stride = tensor.strides[3];
    const std::int64_t size = size_of(type), step = tensor.strides[2] * size;
    const auto* from = static_cast<const std::byte*>(tensor.data) +
                       (batch * tensor.strides[0] + head * tensor.strides[1]) * size + begin * step;
    const std::size_t before = rows.size();
    rows.resize(before + static_cast<std::size_t>(end - begin));
    // One by one, a row of three tensors each was 4 % of the forward pass at n = 64.
    for (std::int64_t i = 0; i < end - begin; ++i)
      rows[before + static_cast<std::size_t>(i)] = from + i * step;
  }

  // The same of a cache, paged or not.
  void add_keys(const ConstTensor& tensor, const PagedKeys& pages, std::int64_t batch,
                std::int64_t head, std::int64_t begin, std::int64_t end) {
    if (!pages) return add(tensor, batch, head, begin, end);
    const std::int64_t page_size = tensor.extents[2];
    for (std::int64_t key = begin; key < end; ++key) {
      const std::int64_t page = pages.table(batch, key / page_size);
      add(tensor, page * tensor.strides[0] + head * tensor.strides[1] +
                      key % page_size * tensor.strides[2]);
    }
  }

  // Copies rows whose columns lie apart into `memory`, so that they are whole for whoever reads
  // them, and results do not depend on strides. Called once all rows are there.
  void copy_if_strided(std::vector<std::byte>& memory) {
    if (column_stride == 1) return;
    const std::int64_t size = size_of(type), row_size = columns * size;
    memory.resize(rows.size() * static_cast<std::size_t>(row_size));
    std::byte* to = memory.data();
    for (const std::byte*& row : rows) {
      for (std::int64_t c = 0; c < columns; ++c) {
        std::memcpy(to + c * size, row + c * column_stride * size, static_cast<std::size_t>(size));
      }
      row = to;
      to += row_size;
    }
    column_stride = 1;
  }

  // Element `column` of row `row`.
  [[nodiscard]] float at(std::size_t row, std::int64_t column) const {
    const std::int64_t offset = column * column_stride;
    switch (type) {
      case DType::f32:
        return reinterpret_cast<const float*>(rows[row])[offset];
      case DType::bf16:
        return to_float(reinterpret_cast<const BFloat16*>(rows[row])[offset]);
      case DType::f16:
        return to_float(reinterpret_cast<const Float16*>(rows[row])[offset]);
    }
    return 0;
  }

 private:
  void add(const ConstTensor& tensor, std::int64_t offset) {
    column_stride = tensor.strides[3];
    rows.push_back(static_cast<const std::byte*>(tensor.data) + offset * size_of(type));
  }
};

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
  }
}

}  // namespace isentrope
