// View: memory of the caller, as a strided array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace isentrope {

// A strided array that does not own its memory. Element (i0, i1, ...) is data[i0 * strides[0] + i1
// * strides[1] + ...]. Strides count elements and may be 0 (broadcast) or negative. A view without
// data stands for an input that is not given or an output that is not requested.
template <typename T, std::size_t Rank>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, Rank> extents{};
  std::array<std::int64_t, Rank> strides{};

  explicit operator bool() const { return data != nullptr; }

  // Returns an element; indices are not checked.
  template <typename... Index>
  T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    std::size_t axis = 0;
    std::int64_t offset = 0;
    ((offset += static_cast<std::int64_t>(index) * strides[axis++]), ...);
    return data[offset];
  }

  operator View<const T, Rank>() const { return {data, extents, strides}; }
};

// Returns a row-major view without gaps, in which the last axis is contiguous.
template <typename T, std::size_t Rank>
View<T, Rank> contiguous_view(T* data, const std::array<std::int64_t, Rank>& extents) {
  View<T, Rank> view{data, extents, {}};
  std::int64_t stride = 1;
  for (std::size_t axis = Rank; axis-- > 0;) {
    view.strides[axis] = stride;
    stride *= extents[axis];
  }
  return view;
}

}  // namespace isentrope
