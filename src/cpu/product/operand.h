#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "isentrope/attention.h"
#include "src/cpu/product/tensor_rows.h"
#include "src/cpu/scratch.h"

namespace isentrope {

// Two bf16 or f16 numbers, neighbours along the depth, for a product that knows which.
struct Pair {
  std::uint16_t first, second;
};
static_assert(sizeof(Pair) == 4);

// Evenly spaced rows: element (r, c) is data[r * stride + c].
template <typename T>
struct Strided {
  const T* data;
  std::ptrdiff_t stride;
};

// The rows of a tensor that a block of a task reads. One pointer a row makes heads, strided views
// (any strides, also 0 and negative) and paged caches look alike to packing. resolve() finds once a
// block whether rows are evenly spaced; if not, packing goes through the pointers. Codes of 8 bits
// become floats: the whole block in resolve(), or in registers if a decode step streams them
// (row_stream-inl.h).
class Operand {
 public:
  explicit Operand(const ConstTensor& tensor) : tensor_(tensor) {}
  // Keys or values, with the scales of their codes, if any.
  Operand(const ConstTensor& tensor, const View<const float, 4>& scale)
      : tensor_(tensor), scale_(scale) {}

  // Arrays for the task's Scratch, for up to `rows` rows: pointers to rows and to scales, and a
  // copy for strided columns or codes.
  [[nodiscard]] std::array<Scratch::Array, 3> arrays(std::size_t rows) {
    return {pointers(rows),
            {scales_, has_codes() ? rows : 0},
            {copy_, tensor_.strides[3] == 1 && !has_codes() ? 0 : rows * row_bytes()}};
  }
  // The first alone, for rows that are only prefetched.
  [[nodiscard]] Scratch::Array pointers(std::size_t rows) { return {rows_, rows}; }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(tensor_.extents[3]); }
  // The type that rows are read as.
  [[nodiscard]] DType type() const { return has_codes() ? DType::f32 : tensor_.type; }
  [[nodiscard]] std::size_t row_bytes() const {
    return columns() * static_cast<std::size_t>(size_of(type()));
  }
  [[nodiscard]] const std::byte* row(std::size_t r) const { return rows_[r]; }

  // Returns whether rows still are codes. Number c of row r is then code c times scale c / group(),
  // rounded to float.
  [[nodiscard]] bool are_codes() const { return are_codes_; }
  [[nodiscard]] std::size_t group() const {
    return columns() / static_cast<std::size_t>(scale_.extents[3]);
  }
  // Returns pointers to the scales of rows r and after; that of group g is at g * scale_stride().
  [[nodiscard]] const float* const* scales_from(std::size_t r) const { return scales_.data() + r; }
  [[nodiscard]] std::ptrdiff_t scale_stride() const { return scale_.strides[3]; }

  // Lists reuse the same memory for each block, so that nothing is allocated between blocks.
  void clear() {
    count_ = 0;
    are_codes_ = has_codes();
    column_stride_ = tensor_.strides[3];
    step_ = 0;
    is_even_ = true;
  }

  // Appends rows begin ... end - 1 of one head.
  void add(std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end) {
    add(batch, head, KeyRange{begin, end});
  }
  void add(std::int64_t batch, std::int64_t head, KeyRange keys) {
    const std::int64_t row = tensor_.strides[2] * size_of(tensor_.type), step = keys.stride * row;
    const std::byte* from =
        at_offset(batch * tensor_.strides[0] + head * tensor_.strides[1]) + keys.begin * row;
    const std::int64_t size = keys.size();
    const auto rows = static_cast<std::size_t>(size);
    const std::byte** to = rows_.at(count_, rows);
    // Appending a row of three tensors at a time took 4 % of the forward pass at n = 64.
    for (std::int64_t i = 0; i < size; ++i) to[i] = from + i * step;
    for (std::int64_t i = 0; are_codes_ && i < size; ++i)
      scales_[count_ + static_cast<std::size_t>(i)] =
          &scale_(batch, head, keys.begin + i * keys.stride, 0);
    update_spacing(from, rows, step);
    count_ += rows;
  }

  // Appends keys of a cache, paged or not.
  void add_keys(const PagedKeys& pages, std::int64_t batch, std::int64_t head, KeyRange keys) {
    if (!pages) return add(batch, head, keys);
    // By pages, because key by key took 18 % of a step with an 8-bit cache and 10 % in bf16.
    const std::int64_t page_size = tensor_.extents[2];
    for (std::int64_t key = keys.begin; key < keys.end;) {
      const std::int64_t first = key - key % page_size;
      const KeyRange in_page{key - first, std::min(keys.end - first, page_size), keys.stride};
      add(pages.block_table(batch, first / page_size), head, in_page);
      key += in_page.size() * keys.stride;
    }
  }

  // Ends the list. Rows with strided columns are copied, so that results do not depend on strides.
  // Codes are widened, unless `streams` leaves that to the reader.
  void resolve(bool streams = false) {
    if (column_stride_ == 1 && (streams || !are_codes_)) return;
    // The copy is contiguous, so every product reads it in place.
    std::byte* to = copy_.at(0, count_ * row_bytes());
    for (std::size_t r = 0; r < count_; ++r, to += row_bytes()) {
      // A size known at compile time avoids a memcpy call for each element.
      are_codes_             ? widen(r, reinterpret_cast<float*>(to))
      : size_of(type()) == 4 ? gather<4>(rows_[r], to)
                             : gather<2>(rows_[r], to);
      rows_[r] = to;
    }
    are_codes_ = false;
    column_stride_ = 1;
    step_ = static_cast<std::ptrdiff_t>(row_bytes());
    is_even_ = true;
  }

  // Returns rows begin ... end - 1 as T, their type, if they are evenly spaced.
  template <typename T>
  [[nodiscard]] std::optional<Strided<T>> evenly(std::size_t begin, std::size_t end) const {
    // Rows within a page are evenly spaced, and few rows mostly are within one page.
    std::ptrdiff_t step = step_;
    bool even = is_even_;
    if (!even) {
      step = end - begin > 1 ? rows_[begin + 1] - rows_[begin] : 0;
      even = true;
      for (std::size_t r = begin + 1; r < end; ++r) even &= rows_[r] - rows_[r - 1] == step;
    }
    if (!even) return std::nullopt;
    return Strided<T>{reinterpret_cast<const T*>(rows_[begin]),
                      step / static_cast<std::ptrdiff_t>(sizeof(T))};
  }

  // Returns the bytes from row r to r + rows. Even spacing continues past the end; otherwise 0.
  [[nodiscard]] std::ptrdiff_t distance(std::size_t r, std::size_t rows) const {
    if (r + rows < count_) return rows_[r + rows] - rows_[r];
    return is_even_ ? static_cast<std::ptrdiff_t>(rows) * step_ : 0;
  }

  // Returns all rows as T, a float or a pair, if a register tile may read them in place. Rows and
  // columns are rounded up to four, and distant rows would share few cache sets.
  template <typename T>
  [[nodiscard]] std::optional<Strided<T>> in_place() const {
    static_assert(sizeof(T) == 4);
    constexpr std::ptrdiff_t kFar = 2048;
    const bool holds = std::is_same_v<T, Pair> ? size_of(type()) == 2 : type() == DType::f32;
    // Groups of four are read whole: what follows the last row or column is not the caller's.
    const bool in_fours = count_ % 4 == 0 && row_bytes() % (4 * sizeof(T)) == 0;
    if (!holds || !in_fours || !is_even_ || step_ <= 0 || step_ >= kFar || step_ % 4 != 0 ||
        reinterpret_cast<std::uintptr_t>(rows_[0]) % sizeof(T) != 0) {
      return std::nullopt;
    }
    return Strided<T>{reinterpret_cast<const T*>(rows_[0]), step_ / 4};
  }

  [[nodiscard]] float at(std::size_t row, std::size_t column) const {
    return float_at(type(), rows_[row], static_cast<std::int64_t>(column) * column_stride_);
  }

 private:
  // Updates whether the list stays evenly spaced when `rows` rows from `from` on, `step` bytes
  // apart, are appended.
  void update_spacing(const std::byte* from, std::size_t rows, std::ptrdiff_t step) {
    if (count_ == 0) {
      step_ = step;
      return;
    }
    const std::ptrdiff_t between = from - rows_[count_ - 1];
    if (count_ == 1) step_ = between;
    is_even_ &= between == step_ && (rows == 1 || step == step_);
  }

  template <std::ptrdiff_t Size>
  void gather(const std::byte* from, std::byte* to) const {
    for (std::int64_t c = 0; c < tensor_.extents[3]; ++c, to += Size)
      std::memcpy(to, from + c * column_stride_ * Size, Size);
  }

  [[nodiscard]] bool has_codes() const { return tensor_.type == DType::i8; }

  void widen(std::size_t row, float* to) const {
    const auto* codes = reinterpret_cast<const std::int8_t*>(rows_[row]);
    const float* scale = scales_[row];
    for (std::size_t c = 0; c < columns(); scale += scale_stride()) {
      for (const std::size_t end = c + group(); c < end; ++c, codes += column_stride_)
        to[c] = *scale * static_cast<float>(*codes);
    }
  }

  [[nodiscard]] const std::byte* at_offset(std::int64_t elements) const {
    return static_cast<const std::byte*>(tensor_.data) + elements * size_of(tensor_.type);
  }

  const ConstTensor& tensor_;
  const View<const float, 4> scale_{};
  Buffer<const std::byte*> rows_;
  Buffer<const float*> scales_;
  Buffer<std::byte> copy_;
  std::size_t count_ = 0;
  std::int64_t column_stride_ = 1;
  std::ptrdiff_t step_ = 0;  // bytes from row to row, if evenly spaced
  bool is_even_ = true, are_codes_ = false;
};

}  // namespace isentrope
