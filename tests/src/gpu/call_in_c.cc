#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "isentrope/error.h"
#include "isentrope/isentrope.h"
#include "src/call/arguments.h"
#include "tests/src/gpu/call_in.h"

namespace isentrope::in_c {
namespace {

void require(isentrope_status status) {
  if (status != ISENTROPE_OK) throw Error(isentrope_last_error());
}

template <typename T>
constexpr isentrope_dtype kType = ISENTROPE_F32;
template <>
constexpr isentrope_dtype kType<std::uint8_t> = ISENTROPE_U8;
template <>
constexpr isentrope_dtype kType<std::int32_t> = ISENTROPE_I32;
template <>
constexpr isentrope_dtype kType<std::int64_t> = ISENTROPE_I64;

isentrope_dtype type_of(DType type) {
  constexpr isentrope_dtype kTypes[] = {ISENTROPE_F32, ISENTROPE_BF16, ISENTROPE_F16, ISENTROPE_I8};
  return kTypes[static_cast<std::size_t>(type)];
}

template <typename Array>
isentrope_array array_of(const Array& from, isentrope_dtype type) {
  isentrope_array array{};
  if (!from) return array;
  array.data = const_cast<void*>(static_cast<const void*>(from.data));
  array.dtype = type;
  array.rank = static_cast<std::int32_t>(from.extents.size());
  std::memcpy(array.extents, from.extents.data(), sizeof from.extents);
  std::memcpy(array.strides, from.strides.data(), sizeof from.strides);
  return array;
}

isentrope_array array_of(const ConstTensor& tensor) {
  return array_of(tensor, type_of(tensor.type));
}

template <typename T, std::size_t Rank>
isentrope_array array_of(const View<T, Rank>& view) {
  return array_of(view, kType<std::remove_const_t<T>>);
}

template <typename Views>
isentrope_statistics statistics_of(const Views& views) {
  StatisticFields<isentrope_array> arrays;
  for_each_statistic(
      [](const Statistic&, const auto& view, isentrope_array& array) { array = array_of(view); },
      views, arrays);
  isentrope_statistics statistics{};
  statistics.struct_size = sizeof statistics;
  std::memcpy(&statistics.lse, &arrays, sizeof arrays);
  return statistics;
}

template <auto Destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    Destroy(object);
  }
};
using Options = std::unique_ptr<isentrope_options, Destroyer<isentrope_options_destroy>>;
using Device = std::unique_ptr<isentrope_device, Destroyer<isentrope_device_close>>;

Options options_of(const AttentionOptions& from) {
  Options to(isentrope_options_create());
  for_each_argument(from, [&](const char* name, const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (requires { argument.strides; }) {
      const isentrope_array array = array_of(argument);
      require(isentrope_options_set_array(to.get(), name, &array));
    } else if constexpr (std::is_same_v<Argument, std::int64_t>) {
      require(isentrope_options_set_integer(to.get(), name, argument));
    }
  });
  require(isentrope_options_set_rule(to.get(), from.rule.text().c_str()));
  require(isentrope_options_set_causal(to.get(), static_cast<isentrope_causal>(from.mask.causal)));
  require(isentrope_options_set_soft_cap(to.get(), from.soft_cap));
  require(isentrope_options_set_dropout(to.get(), from.dropout_p, from.dropout_seed));
  return to;
}

Device device_of(const char* kernels) {
  isentrope_device* device = nullptr;
  require(isentrope_device_open(kernels, 0, &device));
  return Device(device);
}

}  // namespace

void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream) {
  const isentrope_statistics statistics = statistics_of(output.statistics);
  isentrope_forward_call call{};
  call.struct_size = sizeof call;
  call.q = array_of(input.q);
  call.k = array_of(input.k);
  call.v = array_of(input.v);
  call.block_table = array_of(input.pages.block_table);
  call.paged_keys = input.pages.keys;
  call.k_scale = array_of(input.k_scale);
  call.v_scale = array_of(input.v_scale);
  call.output = array_of(output.output);
  call.statistics = &statistics;
  require(
      isentrope_device_forward(options_of(options).get(), &call, device_of(kernels).get(), stream));
}

void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream) {
  const isentrope_statistics statistics = statistics_of(gradient.statistics),
                             d_statistics = statistics_of(gradient.d_statistics);
  isentrope_backward_call call{};
  call.struct_size = sizeof call;
  call.q = array_of(input.q);
  call.k = array_of(input.k);
  call.v = array_of(input.v);
  call.output = array_of(gradient.output);
  call.statistics = &statistics;
  call.d_output = array_of(gradient.d_output);
  call.d_statistics = &d_statistics;
  call.dq = array_of(result.dq);
  call.dk = array_of(result.dk);
  call.dv = array_of(result.dv);
  call.d_bias = array_of(result.d_bias);
  call.d_lambda = array_of(result.d_lambda);
  call.d_sinks = array_of(result.d_sinks);
  require(isentrope_device_backward(options_of(options).get(), &call, device_of(kernels).get(),
                                    stream));
}

}  // namespace isentrope::in_c
