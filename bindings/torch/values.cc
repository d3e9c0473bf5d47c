#include "bindings/torch/values.h"

#include <algorithm>
#include <array>
#include <vector>

namespace isentrope::stable {
namespace {

std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t axis = sizes.size(); axis-- > 0;
       stride *= std::max<std::int64_t>(sizes[axis], 1)) {
    strides[axis] = stride;
  }
  return strides;
}

[[noreturn]] void fail(const char* name, const std::string& required, const std::string& got) {
  throw Error("[attention] " + std::string(name) + " must " + required + "; got " + got);
}

std::string name_of_dtype(std::int32_t dtype) {
  if (dtype == aoti_torch_dtype_float32()) return "float32";
  if (dtype == aoti_torch_dtype_bfloat16()) return "bfloat16";
  if (dtype == aoti_torch_dtype_float16()) return "float16";
  if (dtype == aoti_torch_dtype_int64()) return "int64";
  if (dtype == aoti_torch_dtype_int32()) return "int32";
  if (dtype == aoti_torch_dtype_bool()) return "bool";
  if (dtype == aoti_torch_dtype_float64()) return "float64";
  if (dtype == aoti_torch_dtype_uint8()) return "uint8";
  if (dtype == aoti_torch_dtype_int8()) return "int8";
  if (dtype == aoti_torch_dtype_int16()) return "int16";
  if (dtype == aoti_torch_dtype_complex64()) return "complex64";
  if (dtype == aoti_torch_dtype_float8_e4m3fn()) return "float8_e4m3fn";
  if (dtype == aoti_torch_dtype_float8_e5m2()) return "float8_e5m2";
  return "torch's type number " + std::to_string(dtype);
}

void check_rank(const char* name, const TorchTensor& tensor, std::size_t rank) {
  const std::size_t got = tensor.sizes().size();
  if (got != rank) fail(name, "have " + std::to_string(rank) + " dimensions", std::to_string(got));
}

DType dtype_of(const char* name, const TorchTensor& tensor) {
  const std::int32_t dtype = tensor.dtype();
  if (dtype == aoti_torch_dtype_float32()) return DType::f32;
  if (dtype == aoti_torch_dtype_bfloat16()) return DType::bf16;
  if (dtype == aoti_torch_dtype_float16()) return DType::f16;
  fail(name, "be float32, bfloat16 or float16", name_of_dtype(dtype));
}

template <std::size_t Rank>
std::array<std::int64_t, Rank> first(std::span<const std::int64_t> numbers) {
  std::array<std::int64_t, Rank> result;
  std::copy_n(numbers.begin(), Rank, result.begin());
  return result;
}

}  // namespace

TorchTensor::TorchTensor(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                         std::int32_t dtype) {
  AtenTensorHandle handle = nullptr;
  must(aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(),
                                strides.data(), dtype, aoti_torch_device_type_cpu(), 0, &handle),
       "make a tensor");
  handle_.reset(handle);
}

TorchTensor::TorchTensor(std::span<const std::int64_t> sizes, std::int32_t dtype)
    : TorchTensor(sizes, row_major(sizes), dtype) {}

std::span<const std::int64_t> TorchTensor::sizes() const {
  std::int64_t dims = 0, *sizes = nullptr;
  must(aoti_torch_get_dim(handle_.get(), &dims), "tell a tensor's rank");
  must(aoti_torch_get_sizes(handle_.get(), &sizes), "tell a tensor's sizes");
  return {sizes, static_cast<std::size_t>(dims)};
}

std::span<const std::int64_t> TorchTensor::strides() const {
  std::int64_t dims = 0, *strides = nullptr;
  must(aoti_torch_get_dim(handle_.get(), &dims), "tell a tensor's rank");
  must(aoti_torch_get_strides(handle_.get(), &strides), "tell a tensor's strides");
  return {strides, static_cast<std::size_t>(dims)};
}

std::int32_t TorchTensor::dtype() const {
  std::int32_t dtype = 0;
  must(aoti_torch_get_dtype(handle_.get(), &dtype), "tell a tensor's type");
  return dtype;
}

const void* TorchTensor::read() const {
  const void* data = nullptr;
  must(torch_get_const_data_ptr(handle_.get(), &data), "read a tensor");
  return data;
}

void* TorchTensor::write() const {
  void* data = nullptr;
  must(aoti_torch_get_data_ptr(handle_.get(), &data), "write a tensor");
  return data;
}

ConstTensor number_view(const char* name, const TorchTensor& tensor) {
  if (!tensor) return {};
  check_rank(name, tensor, 4);
  return {tensor.read(), dtype_of(name, tensor), first<4>(tensor.sizes()),
          first<4>(tensor.strides())};
}

template <typename T, std::size_t Rank>
View<const T, Rank> view_of(const char* name, const TorchTensor& tensor) {
  if (!tensor) return {};
  check_rank(name, tensor, Rank);
  if (tensor.dtype() != dtype_of_numbers<T>()) {
    fail(name, "be " + name_of_dtype(dtype_of_numbers<T>()), name_of_dtype(tensor.dtype()));
  }
  return {static_cast<const T*>(tensor.read()), first<Rank>(tensor.sizes()),
          first<Rank>(tensor.strides())};
}

template View<const double, 0> view_of(const char*, const TorchTensor&);
template View<const double, 1> view_of(const char*, const TorchTensor&);
template View<const double, 3> view_of(const char*, const TorchTensor&);
template View<const double, 4> view_of(const char*, const TorchTensor&);
template View<const float, 1> view_of(const char*, const TorchTensor&);
template View<const float, 3> view_of(const char*, const TorchTensor&);
template View<const float, 4> view_of(const char*, const TorchTensor&);
template View<const std::uint8_t, 4> view_of(const char*, const TorchTensor&);
template View<const std::int8_t, 4> view_of(const char*, const TorchTensor&);
template View<const std::int64_t, 0> view_of(const char*, const TorchTensor&);
template View<const std::int64_t, 1> view_of(const char*, const TorchTensor&);
template View<const std::int64_t, 2> view_of(const char*, const TorchTensor&);
template View<const std::int64_t, 4> view_of(const char*, const TorchTensor&);
template View<const std::int32_t, 2> view_of(const char*, const TorchTensor&);

double number_of(const char* name, const TorchTensor& tensor) {
  return view_of<double, 0>(name, tensor)();
}

std::int64_t integer_of(const char* name, const TorchTensor& tensor) {
  return view_of<std::int64_t, 0>(name, tensor)();
}

Tensor output_view(const TorchTensor& tensor) {
  return {tensor.write(), dtype_of("output", tensor), first<4>(tensor.sizes()),
          first<4>(tensor.strides())};
}

OptionalTensor::OptionalTensor(Arguments& from) {
  const std::unique_ptr<StableIValue> value(reinterpret_cast<StableIValue*>(from.next()));
  if (value) handle_.reset(reinterpret_cast<AtenTensorHandle>(*value));
}

std::string_view TorchText::view() const {
  std::size_t length = 0;
  const char* data = nullptr;
  must(torch_string_length(handle_.get(), &length), "tell a string's length");
  must(torch_string_c_str(handle_.get(), &data), "read a string");
  return {data, length};
}

StableIValue to_value(const std::string& text) {
  StringHandle handle = nullptr;
  must(torch_new_string_handle(text.data(), text.size(), &handle), "make a string");
  return reinterpret_cast<StableIValue>(handle);
}

StableIValue to_value(std::vector<TorchTensor> tensors) {
  StableListHandle list = nullptr;
  must(torch_new_list_reserve_size(tensors.size(), &list), "make a list");
  for (TorchTensor& tensor : tensors)
    must(torch_list_push_back(list, to_value(std::move(tensor))), "add to a list");
  return reinterpret_cast<StableIValue>(list);
}

}  // namespace isentrope::stable
