// Object behind the C interface's handle, and error handling of its functions.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "isentrope/attention.h"
#include "isentrope/isentrope.h"

struct isentrope_options {
  isentrope::AttentionOptions options;
};

namespace isentrope::c_api {

// Runs body() and converts what it throws to a status: no exception leaves the library through C.
isentrope_status guarded(const std::function<void()>& body) noexcept;

[[noreturn]] void fail(const std::string& function, const std::string& name,
                       const std::string& required, const std::string& got);

// Returns the argument of that name; throws Error if it is NULL.
template <typename T>
T& required(const char* function, const char* name, T* pointer) {
  if (pointer == nullptr) fail(function, name, "not be NULL", "NULL");
  return *pointer;
}

[[nodiscard]] bool is_given(const isentrope_array& array);

// Throws unless the array has that type and rank and, if it has elements, data.
void check_array(const char* function, const char* name, const isentrope_array& array,
                 isentrope_dtype type, std::int32_t rank);

template <typename T>
inline constexpr isentrope_dtype kCType = ISENTROPE_F32;
template <>
inline constexpr isentrope_dtype kCType<std::uint8_t> = ISENTROPE_U8;
template <>
inline constexpr isentrope_dtype kCType<std::int8_t> = ISENTROPE_I8;
template <>
inline constexpr isentrope_dtype kCType<std::int32_t> = ISENTROPE_I32;
template <>
inline constexpr isentrope_dtype kCType<std::int64_t> = ISENTROPE_I64;

// Returns the array as a view, without data if the array was not given.
template <typename T, std::size_t Rank>
View<T, Rank> view_of(const char* function, const char* name, const isentrope_array& array) {
  View<T, Rank> view;
  if (!is_given(array)) return view;
  check_array(function, name, array, kCType<std::remove_const_t<T>>, Rank);
  view.data = static_cast<T*>(array.data);
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    view.extents[axis] = array.extents[axis];
    view.strides[axis] = array.strides[axis];
  }
  return view;
}

// Same for q, k, v and arrays of their shape.
[[nodiscard]] Tensor tensor_of(const char* function, const char* name,
                               const isentrope_array& array);

}  // namespace isentrope::c_api
