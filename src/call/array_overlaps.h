// ArrayOverlaps: checks of a call's arrays and of their memory: no output overwrites another array.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isentrope/tensor.h"
#include "isentrope/view.h"
#include "src/call/checks.h"

namespace isentrope {

// Bytes of a strided array: blocks without gaps, at distances that are multiples of a step.
class MemoryRange {
 public:
  MemoryRange() = default;  // no elements

  // Strides count elements of `size` bytes.
  MemoryRange(const void* data, std::int64_t size, std::span<const std::int64_t> extents,
              std::span<const std::int64_t> strides);

  [[nodiscard]] bool is_empty() const { return span_ == 0; }

  // Returns whether the bytes from the first element to the last fit in the address space.
  [[nodiscard]] bool is_reachable() const { return reachable_; }

  // Whether no two elements overlap: each axis steps over the whole extent of the shorter ones.
  [[nodiscard]] bool has_distinct_elements() const { return distinct_; }

  // Returns whether both arrays may share a byte; never false if they do. Interleaved arrays, such
  // as dq, dk and dv in one packed array, are separate if a common step of both holds a block of
  // each. Otherwise arrays overlap if their address ranges do.
  [[nodiscard]] bool overlaps(const MemoryRange& other) const;

 private:
  std::uint64_t begin_ = 0, span_ = 0;  // first address, bytes to the end
  std::uint64_t block_ = 0;             // bytes of a block
  std::uint64_t step_ = 0;              // bytes between blocks; 0 for one block
  bool reachable_ = true, distinct_ = true;
};

// The arrays of one call. Arrays without data occupy no memory. All reads come before the writes.
class ArrayOverlaps : public Checks {
 public:
  using Checks::Checks;

  template <typename Array>
  void read(std::string_view name, const Array& array) {
    add(name, range_of(array), false);
  }
  // Throws Error if elements of the array overlap each other or an earlier array.
  template <typename Array>
  void write(std::string_view name, const Array& array) {
    add(name, range_of(array), true);
  }

  // Same, after checking the shape.
  template <typename Array, std::size_t Rank>
  void read(std::string_view name, const Array& array, const Shape<Rank>& wanted) {
    shape(name, array, wanted);
    read(name, array);
  }
  template <typename Array, std::size_t Rank>
  void read_if_given(std::string_view name, const Array& array, const Shape<Rank>& wanted) {
    if (array) read(name, array, wanted);
  }
  template <typename Array, std::size_t Rank>
  void write(std::string_view name, const Array& array, const Shape<Rank>& wanted) {
    shape(name, array, wanted);
    own_places(name, array);
    write(name, array);
  }
  template <typename Array, std::size_t Rank>
  void write_if_given(std::string_view name, const Array& array, const Shape<Rank>& wanted) {
    if (array) write(name, array, wanted);
  }

 private:
  template <typename Array>
  static MemoryRange range_of(const Array& array) {
    if (array.data == nullptr) return {};
    std::int64_t size = 0;
    if constexpr (requires { array.type; }) {
      size = size_of(array.type);
    } else {
      size = sizeof *array.data;
    }
    return {array.data, size, array.extents, array.strides};
  }
  void add(std::string_view name, const MemoryRange& range, bool written);

  static constexpr std::size_t kMost = 64;
  struct Named {
    std::string name;
    MemoryRange range;
  };

  std::array<Named, kMost> arrays_;
  std::size_t count_ = 0;
};

}  // namespace isentrope
