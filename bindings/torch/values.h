// Values of the stable interface: tensors, strings and numbers on a stack.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/torch/shim.h"
#include "isentrope/error.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope::stable {

inline void must(AOTITorchError error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string("[isentrope] torch could not ") + what);
}

// Reads arguments in order, all before anything may throw, as kernels own them. Needs no memory.
class Arguments {
 public:
  explicit Arguments(const StableIValue* stack) : next_(stack) {}

  StableIValue next() { return *next_++; }
  std::int64_t integer() { return static_cast<std::int64_t>(next()); }
  double number() { return std::bit_cast<double>(next()); }

 private:
  const StableIValue* next_;
};

// Owner of a tensor, or empty.
class TorchTensor {
 public:
  TorchTensor() = default;
  explicit TorchTensor(Arguments& from)
      : handle_(reinterpret_cast<AtenTensorHandle>(from.next())) {}
  // Allocates an uninitialised CPU tensor. Sizes and strides have the same length.
  TorchTensor(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
              std::int32_t dtype);
  // Same, row-major.
  TorchTensor(std::span<const std::int64_t> sizes, std::int32_t dtype);

  explicit operator bool() const { return handle_ != nullptr; }
  [[nodiscard]] std::span<const std::int64_t> sizes() const;
  [[nodiscard]] std::span<const std::int64_t> strides() const;
  [[nodiscard]] std::int64_t size(std::size_t axis) const { return sizes()[axis]; }
  [[nodiscard]] std::int32_t dtype() const;
  [[nodiscard]] const void* read() const;
  [[nodiscard]] void* write() const;
  [[nodiscard]] AtenTensorHandle release() { return handle_.release(); }

 protected:
  struct Delete {
    void operator()(AtenTensorHandle handle) const { aoti_torch_delete_tensor_object(handle); }
  };
  std::unique_ptr<AtenTensorOpaque, Delete> handle_;
};

// Same for an argument that may be absent, which is then empty.
class OptionalTensor : public TorchTensor {
 public:
  explicit OptionalTensor(Arguments& from);
};

// Owner of a string, or empty.
class TorchText {
 public:
  TorchText() = default;
  explicit TorchText(Arguments& from) : handle_(reinterpret_cast<StringHandle>(from.next())) {}

  // Valid as long as this object.
  [[nodiscard]] std::string_view view() const;

 private:
  struct Delete {
    void operator()(StringHandle handle) const { torch_delete_string(handle); }
  };
  std::unique_ptr<StringOpaque, Delete> handle_;
};

// Return views of a tensor's memory, empty for no tensor. The tensor must outlive them. Throw Error
// naming the tensor for a wrong rank or type.
[[nodiscard]] ConstTensor number_view(const char* name, const TorchTensor& tensor);
template <typename T, std::size_t Rank>
[[nodiscard]] View<const T, Rank> view_of(const char* name, const TorchTensor& tensor);
[[nodiscard]] Tensor output_view(const TorchTensor& tensor);
// Returns the number in a float64 or int64 tensor without dimensions.
[[nodiscard]] double number_of(const char* name, const TorchTensor& tensor);
[[nodiscard]] std::int64_t integer_of(const char* name, const TorchTensor& tensor);

// Returns torch's code of the type T.
template <typename T>
[[nodiscard]] std::int32_t dtype_of_numbers() {
  if constexpr (std::is_same_v<T, float>) return aoti_torch_dtype_float32();
  if constexpr (std::is_same_v<T, double>) return aoti_torch_dtype_float64();
  if constexpr (std::is_same_v<T, std::uint8_t>) return aoti_torch_dtype_bool();
  if constexpr (std::is_same_v<T, std::int8_t>) return aoti_torch_dtype_int8();
  if constexpr (std::is_same_v<T, std::int64_t>) return aoti_torch_dtype_int64();
  if constexpr (std::is_same_v<T, std::int32_t>) return aoti_torch_dtype_int32();
}
[[nodiscard]] inline bool is_float64(const TorchTensor& tensor) {
  return tensor.dtype() == aoti_torch_dtype_float64();
}

inline StableIValue to_value(TorchTensor tensor) {
  return reinterpret_cast<StableIValue>(tensor.release());
}
inline StableIValue to_value(double number) { return std::bit_cast<StableIValue>(number); }
inline StableIValue to_value(std::int64_t number) { return static_cast<StableIValue>(number); }
inline StableIValue to_value(bool is_true) { return is_true ? 1 : 0; }
StableIValue to_value(const std::string& text);
// Converts to a list, which takes ownership.
StableIValue to_value(std::vector<TorchTensor> tensors);

// Puts a kernel's result on the stack, or its results.
template <typename Result>
void put(Result result, StableIValue* stack) {
  *stack = to_value(std::move(result));
}
template <std::size_t count>
void put(std::array<TorchTensor, count> results, StableIValue* stack) {
  for (TorchTensor& result : results) *stack++ = to_value(std::move(result));
}

}  // namespace isentrope::stable
