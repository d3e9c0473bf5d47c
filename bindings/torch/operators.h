// Operators of the library: a kernel is a function of an operator's arguments that returns its
// results, and each file of kernels defines its own operators.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bindings/torch/values.h"

namespace isentrope::stable {

// Reads the next argument as the type of a kernel's parameter. Types that own several arguments
// read them in their constructors.
template <typename T>
T argument(Arguments& from) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return from.integer();
  } else if constexpr (std::is_same_v<T, bool>) {
    return from.integer() != 0;
  } else if constexpr (std::is_same_v<T, std::array<bool, 3>>) {
    return {argument<bool>(from), argument<bool>(from), argument<bool>(from)};
  } else {
    return T(from);
  }
}

// Calls a kernel after reading all its arguments in order.
template <typename Result, typename... Parameters, typename... Read>
Result call_kernel(Result (*kernel)(Parameters...), Arguments& from, Read&... read) {
  if constexpr (sizeof...(Read) == sizeof...(Parameters)) {
    return kernel(read...);
  } else {
    using Next = std::tuple_element_t<sizeof...(Read), std::tuple<std::decay_t<Parameters>...>>;
    Next next = argument<Next>(from);
    return call_kernel(kernel, from, read..., next);
  }
}

// Kernel as torch calls it: the arguments on the stack are replaced by the results.
template <auto kernel>
void on_stack(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  if constexpr (std::is_void_v<decltype(call_kernel(kernel, from))>) {
    call_kernel(kernel, from);
  } else {
    put(call_kernel(kernel, from), stack);
  }
}

// Defines operators by their schemas.
class Library {
 public:
  Library();

  // For CPU tensors.
  template <auto kernel>
  void on_cpu(const std::string& schema) const {
    define(schema, cpu_, on_stack<kernel>);
  }
  // Without tensors, and so without a device to dispatch on.
  template <auto kernel>
  void anywhere(const std::string& schema) const {
    define(schema, any_, on_stack<kernel>);
  }

 private:
  using Kernel = void(StableIValue*, std::uint64_t, std::uint64_t);
  static void define(const std::string& schema, TorchLibraryHandle library, Kernel* kernel);

  TorchLibraryHandle cpu_, any_;
};

void define_attention(const Library& library);
void define_derivatives(const Library& library);
void define_key_statistics(const Library& library);
void define_plain(const Library& library);
void define_plans(const Library& library);
void define_rules(const Library& library);

}  // namespace isentrope::stable
