// Operand: the rows of a tensor that one block of a task works on, and how they can be read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "isentrope/attention.h"
#include "src/cpu/product/tensor_rows.h"
#include "src/cpu/scratch.h"

namespace isentrope {

// Two bf16 or f16 numbers that a dot product takes at once: neighbours along its depth. Which they
// are is known to the product.
struct Pair {
  std::uint16_t first, second;
};
static_assert(sizeof(Pair) == 4);

// Rows that lie evenly: element (r, c) is data[r * stride + c].
template <typename T>
struct Strided {
  const T* data;
  std::ptrdiff_t stride;
};

// Rows are found through one pointer each, so those of several heads, of a strided view or of a
// paged cache look alike to whoever packs them. resolve() settles, once a block, whether they lie
// evenly, which is what the products ask.
// Strides are any, of 0 and negative ones too: what a product cannot read in place is packed row by
// row, through the pointers.
// Codes of 8 bits become floats: all of a block in resolve(), or in registers where a decode step
// streams them (row_stream-inl.h).
class Operand {
 public:
  explicit Operand(const ConstTensor& tensor) : tensor_(tensor) {}
  // Of keys or values, with the scales of their codes, if they are any.
  Operand(const ConstTensor& tensor, const View<const float, 4>& scale)
      : tensor_(tensor), scale_(scale) {}

  // What a task's Scratch has to hold for up to `rows` rows: their pointers, those of their scales
  // and, where columns lie apart or are codes, a copy.
  [[nodiscard]] Scratch::Array pointers(std::size_t rows) { return {rows_, rows}; }
  [[nodiscard]] Scratch::Array scales(std::size_t rows) {
    return {scales_, has_codes() ? rows : 0};
  }
  [[nodiscard]] Scratch::Array copy(std::size_t rows) {
    return {copy_, tensor_.strides[3] == 1 && !has_codes() ? 0 : rows * row_bytes()};
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(tensor_.extents[3]); }
  // Of what rows are read as.
  [[nodiscard]] DType type() const { return has_codes() ? DType::f32 : tensor_.type; }
  [[nodiscard]] std::size_t row_bytes() const {
    return columns() * static_cast<std::size_t>(size_of(type()));
  }
  [[nodiscard]] const std::byte* row(std::size_t r) const { return rows_[r]; }

  // Whether rows still are codes. Number c of row r is then code c times scale c / group(), rounded
  // to float.
  [[nodiscard]] bool are_codes() const { return are_codes_; }
  [[nodiscard]] std::size_t group() const {
    return columns() / static_cast<std::size_t>(scale_.extents[3]);
  }
  // The scales of rows r and after, a pointer each: that of group g is at g * scale_stride().
  [[nodiscard]] const float* const* scales_from(std::size_t r) const { return scales_.data() + r; }
  [[nodiscard]] std::ptrdiff_t scale_stride() const { return scale_.strides[3]; }

  // Lists are made anew for each block, in the same memory: nothing is allocated between two
  // blocks.
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
  void add(std::int64_t batch, std::int64_t head, KeyRange of) {
    const std::int64_t row = tensor_.strides[2] * size_of(tensor_.type), step = of.stride * row;
    const std::byte* from =
        at_offset(batch * tensor_.strides[0] + head * tensor_.strides[1]) + of.begin * row;
    const std::int64_t size = of.size();
    const auto rows = static_cast<std::size_t>(size);
    const std::byte** to = rows_.at(count_, rows);
    // One by one, a row of three tensors each was 4 % of the forward pass at n = 64.
    for (std::int64_t i = 0; i < size; ++i) to[i] = from + i * step;
    for (std::int64_t i = 0; are_codes_ && i < size; ++i)
      scales_[count_ + static_cast<std::size_t>(i)] =
          &scale_(batch, head, of.begin + i * of.stride, 0);
    go_on_evenly(from, rows, step);
    count_ += rows;
  }

  // Appends the same of a cache, paged or not.
  void add_keys(const PagedKeys& pages, std::int64_t batch, std::int64_t head, KeyRange of) {
    if (!pages) return add(batch, head, of);
    // Page by page: key by key was 18 % of a step with a cache of 8 bits, and 10 of one in bf16.
    const std::int64_t page_size = tensor_.extents[2];
    for (std::int64_t key = of.begin; key < of.end;) {
      const std::int64_t first = key - key % page_size;
      const KeyRange in_page{key - first, std::min(of.end - first, page_size), of.stride};
      add(pages.block_table(batch, first / page_size), head, in_page);
      key += in_page.size() * of.stride;
    }
  }

  // Ends the list. Rows whose columns lie apart are copied, so that results do not depend on
  // strides; those of codes are widened, unless `streams`: whoever reads them then does.
  void resolve(bool streams = false) {
    if (column_stride_ == 1 && (streams || !are_codes_)) return;
    // A copy is whole rows one after the other, hence even, and in place for every product.
    std::byte* to = copy_.at(0, count_ * row_bytes());
    for (std::size_t r = 0; r < count_; ++r, to += row_bytes()) {
      // A size that is known saves a call of memcpy an element.
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

  // Rows begin ... end - 1 as T, which is their type, where they lie evenly.
  template <typename T>
  [[nodiscard]] std::optional<Strided<T>> evenly(std::size_t begin, std::size_t end) const {
    // Pages of a cache are even within, and few rows mostly lie within one.
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

  // Bytes from row r to the one `rows` further on; behind the list's end as if it went on, where it
  // is even, and else 0.
  [[nodiscard]] std::ptrdiff_t distance(std::size_t r, std::size_t rows) const {
    if (r + rows < count_) return rows_[r + rows] - rows_[r];
    return is_even_ ? static_cast<std::ptrdiff_t>(rows) * step_ : 0;
  }

  // All rows, of which there are some, as T, a float or a pair, where a register tile may read them
  // as they lie: it rounds rows and columns up to four, and rows far apart fall into few sets of
  // the cache.
  template <typename T>
  [[nodiscard]] std::optional<Strided<T>> in_place() const {
    static_assert(sizeof(T) == 4);
    constexpr std::ptrdiff_t kFar = 2048;
    const bool holds = std::is_same_v<T, Pair> ? size_of(type()) == 2 : type() == DType::f32;
    // The register tile reads whole groups of four past the last row or column, which need not be
    // the caller's memory.
    const bool whole = count_ % 4 == 0 && row_bytes() % (4 * sizeof(T)) == 0;
    if (!holds || !whole || !is_even_ || step_ <= 0 || step_ >= kFar || step_ % 4 != 0 ||
        reinterpret_cast<std::uintptr_t>(rows_[0]) % sizeof(T) != 0) {
      return std::nullopt;
    }
    return Strided<T>{reinterpret_cast<const T*>(rows_[0]), step_ / 4};
  }

  // Element `column` of row `row`.
  [[nodiscard]] float at(std::size_t row, std::size_t column) const {
    return float_at(type(), rows_[row], static_cast<std::int64_t>(column) * column_stride_);
  }

 private:
  // Before `rows` rows from `from` on, `step` bytes apart, are appended: whether the list stays
  // even.
  void go_on_evenly(const std::byte* from, std::size_t rows, std::ptrdiff_t step) {
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
  std::ptrdiff_t step_ = 0;  // bytes from row to row, where they lie evenly
  bool is_even_ = true, are_codes_ = false;
};

}  // namespace isentrope
