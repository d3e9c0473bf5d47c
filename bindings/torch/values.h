// Values of the stable interface: tensors, strings and numbers on a stack.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/torch/shim.h"
#include "isentrope/error.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope::stable {

inline void must(AOTITorchError error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string("[isentrope] torch could not ") + what);
}

// Owner of a tensor, or empty.
class TorchTensor {
 public:
  TorchTensor() = default;
  explicit TorchTensor(AtenTensorHandle handle) : handle_(handle) {}
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

 private:
  struct Delete {
    void operator()(AtenTensorHandle handle) const { aoti_torch_delete_tensor_object(handle); }
  };
  std::unique_ptr<AtenTensorOpaque, Delete> handle_;
};

// Owner of a string, or empty.
class TorchText {
 public:
  TorchText() = default;
  explicit TorchText(StringHandle handle) : handle_(handle) {}

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

// torch's code of the type T.
template <typename T>
[[nodiscard]] std::int32_t dtype_of_numbers();
template <>
std::int32_t dtype_of_numbers<float>();
template <>
std::int32_t dtype_of_numbers<double>();
template <>
std::int32_t dtype_of_numbers<std::uint8_t>();
template <>
std::int32_t dtype_of_numbers<std::int8_t>();
template <>
std::int32_t dtype_of_numbers<std::int64_t>();
template <>
std::int32_t dtype_of_numbers<std::int32_t>();
[[nodiscard]] inline bool is_float64(const TorchTensor& tensor) {
  return tensor.dtype() == aoti_torch_dtype_float64();
}

// Reads arguments in order, all before anything may throw, as kernels own them. Needs no memory.
class Arguments {
 public:
  explicit Arguments(const StableIValue* stack) : next_(stack) {}

  TorchTensor tensor() { return TorchTensor(reinterpret_cast<AtenTensorHandle>(*next_++)); }
  TorchTensor optional_tensor();
  TorchText text() { return TorchText(reinterpret_cast<StringHandle>(*next_++)); }
  std::int64_t integer() { return static_cast<std::int64_t>(*next_++); }
  double number() { return std::bit_cast<double>(*next_++); }

 private:
  const StableIValue* next_;
};

inline StableIValue to_value(TorchTensor tensor) {
  return reinterpret_cast<StableIValue>(tensor.release());
}
inline StableIValue to_value(double number) { return std::bit_cast<StableIValue>(number); }
StableIValue to_value(std::string_view text);
// Converts to a list, which takes ownership.
StableIValue to_value(std::span<TorchTensor> tensors);

}  // namespace isentrope::stable
