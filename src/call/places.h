// Places: where the arrays of a call lie in memory, so that nothing is written over what another
// array holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// The bytes of a strided array: blocks without gaps, whose distances are multiples of a step.
class Place {
 public:
  Place() = default;  // of no elements

  // Strides count elements of `size` bytes.
  Place(const void* data, std::int64_t size, std::span<const std::int64_t> extents,
        std::span<const std::int64_t> strides);

  [[nodiscard]] bool is_empty() const { return span_ == 0; }

  // Whether addresses reach from the first element to the last.
  [[nodiscard]] bool is_reachable() const { return reachable_; }

  // Whether no two elements meet: each axis steps over all that the shorter ones span.
  [[nodiscard]] bool keeps_elements_apart() const { return apart_; }

  // True wherever both hold the same byte. Interleaved arrays, such as the dq, dk and dv of one
  // packed array, are told apart when all that steps over the blocks of one also steps over those
  // of the other; where not, arrays overlap that lie between each other's first and last bytes.
  [[nodiscard]] bool overlaps(const Place& other) const;

 private:
  std::uint64_t begin_ = 0, span_ = 0;  // from the first byte to behind the last
  std::uint64_t block_ = 0;             // bytes of a block
  std::uint64_t step_ = 0;              // 0: there is one block
  bool reachable_ = true, apart_ = true;
};

// The arrays of one call. Those without data take no place.
class Places {
 public:
  explicit Places(std::string_view function) : function_(function) {}

  template <typename T, std::size_t Rank>
  void read(std::string_view name, const View<T, Rank>& view) {
    add(name, place_of(view.data, sizeof(T), view), false);
  }
  void read(std::string_view name, const ConstTensor& tensor) {
    add(name, place_of(tensor.data, size_of(tensor.type), tensor), false);
  }

  // Throws Error when elements of the array meet each other, or one of an array before it.
  template <typename T, std::size_t Rank>
  void write(std::string_view name, const View<T, Rank>& view) {
    add(name, place_of(view.data, sizeof(T), view), true);
  }
  void write(std::string_view name, const ConstTensor& tensor) {
    add(name, place_of(tensor.data, size_of(tensor.type), tensor), true);
  }

 private:
  template <typename Array>
  static Place place_of(const void* data, std::int64_t size, const Array& array) {
    return data == nullptr ? Place() : Place(data, size, array.extents, array.strides);
  }
  void add(std::string_view name, const Place& place, bool written);

  static constexpr std::size_t kMost = 48;
  struct Named {
    std::string name;
    Place place;
  };

  std::string_view function_;
  std::array<Named, kMost> places_;
  std::size_t count_ = 0;
};

}  // namespace isentrope
