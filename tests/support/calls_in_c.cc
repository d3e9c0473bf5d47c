#include "tests/support/calls_in_c.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "isentrope/error.h"
#include "isentrope/isentrope.h"
#include "src/call/arguments.h"

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

// An empty array may have no address here, and needs one in C.
template <typename Array>
isentrope_array required(Array array) {
  alignas(16) static char nothing[16];
  if (!array) array.data = reinterpret_cast<decltype(array.data)>(nothing);
  return array_of(array);
}

template <typename Views>
isentrope_statistics statistics_of(const Views& views) {
  StatisticFields<isentrope_array> arrays;
  for_each_statistic(
      [](const Statistic& statistic, const auto& view, isentrope_array& array) {
        const bool is_needed = statistic.name == "lse" && view.extents != decltype(view.extents){};
        array = is_needed ? required(view) : array_of(view);
      },
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
  for_each_host_argument(from, [&](const char* name, const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (requires { argument.strides; }) {
      const isentrope_array array = array_of(argument);
      require(isentrope_options_set_array(to.get(), name, &array));
    } else if constexpr (std::is_same_v<Argument, std::int64_t> || std::is_same_v<Argument, bool>) {
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

template <typename Call>
Call call_on(const AttentionInput& input) {
  Call call{};
  call.struct_size = sizeof call;
  call.q = required(input.q);
  call.k = required(input.k);
  if constexpr (requires { call.v; }) call.v = required(input.v);
  if constexpr (requires { call.block_table; }) {
    call.block_table = array_of(input.pages.block_table);
    call.paged_keys = input.pages.keys;
    call.k_scale = array_of(input.k_scale);
    call.seqused_k = array_of(input.pages.seqused_k);
    call.cu_seq_q = array_of(input.pages.cu_seq_q);
  }
  return call;
}

isentrope_forward_call call_of(const AttentionInput& input, const AttentionOutput& output,
                               const isentrope_statistics& statistics) {
  auto call = call_on<isentrope_forward_call>(input);
  call.v_scale = array_of(input.v_scale);
  call.output = required(output.output);
  call.statistics = &statistics;
  call.received = array_of(output.received);
  return call;
}

template <typename Call>
void set_gradients(Call& call, const AttentionGradients& gradients) {
  call.dq = required(gradients.dq);
  call.dk = required(gradients.dk);
  call.dv = required(gradients.dv);
  call.d_bias = array_of(gradients.d_bias);
  call.d_lambda = array_of(gradients.d_lambda);
  call.d_sinks = array_of(gradients.d_sinks);
}

isentrope_backward_call call_of(const AttentionInput& input, const AttentionGradientInput& given,
                                const isentrope_statistics& statistics,
                                const isentrope_statistics& d_statistics,
                                const AttentionGradients& gradients) {
  auto call = call_on<isentrope_backward_call>(input);
  call.output = required(given.output);
  call.statistics = &statistics;
  call.d_output = array_of(given.d_output);
  call.d_statistics = &d_statistics;
  set_gradients(call, gradients);
  return call;
}

// Arrays that both passes of a tangent have.
template <typename Given>
isentrope_tangent_call call_of(const AttentionInput& input, const Given& given,
                               const ConstTensor& tangent_output,
                               const isentrope_statistics& statistics,
                               const isentrope_statistics& tangent_statistics) {
  auto call = call_on<isentrope_tangent_call>(input);
  call.output = required(given.output);
  call.statistics = &statistics;
  call.tangent_q = array_of(given.tangents.q);
  call.tangent_k = array_of(given.tangents.k);
  call.tangent_v = array_of(given.tangents.v);
  call.tangent_bias = array_of(given.tangents.bias);
  call.tangent_lambda = array_of(given.tangents.lambda);
  call.tangent_sinks = array_of(given.tangents.sinks);
  call.tangent_output = required(tangent_output);
  call.tangent_statistics = &tangent_statistics;
  return call;
}

void forward(const AttentionInput& input, const AttentionOptions& options,
             const AttentionOutput& output) {
  const isentrope_statistics statistics = statistics_of(output.statistics);
  const isentrope_forward_call call = call_of(input, output, statistics);
  require(isentrope_forward(options_of(options).get(), &call));
}

void backward(const AttentionInput& input, const AttentionOptions& options,
              const AttentionGradientInput& given, const AttentionGradients& result) {
  const isentrope_statistics statistics = statistics_of(given.statistics),
                             d_statistics = statistics_of(given.d_statistics);
  const auto call = call_of(input, given, statistics, d_statistics, result);
  require(isentrope_backward(options_of(options).get(), &call));
}

void tangent(const AttentionInput& input, const AttentionOptions& options,
             const AttentionTangentInput& given, const AttentionTangentOutput& result) {
  const isentrope_statistics statistics = statistics_of(given.statistics),
                             changes = statistics_of(result.statistics);
  const auto call = call_of(input, given, result.output, statistics, changes);
  require(isentrope_tangent(options_of(options).get(), &call));
}

void second_order(const AttentionInput& input, const AttentionOptions& options,
                  const AttentionSecondOrderInput& given, const AttentionGradients& result) {
  const isentrope_statistics statistics = statistics_of(given.statistics),
                             changes = statistics_of(given.statistic_tangents),
                             d_statistics = statistics_of(given.d_statistics);
  const auto of_tangent = call_of(input, given, given.output_tangent, statistics, changes);
  isentrope_second_order_call call{};
  call.struct_size = sizeof call;
  call.tangent = &of_tangent;
  call.d_output = array_of(given.d_output);
  call.d_statistics = &d_statistics;
  set_gradients(call, result);
  require(isentrope_second_order(options_of(options).get(), &call));
}

void received(const AttentionInput& input, const AttentionOptions& options,
              const KeyStatisticsRows& rows, const View<float, 3>& result) {
  auto call = call_on<isentrope_received_call>(input);
  call.lse = required(rows.lse);
  call.weights = array_of(rows.weights);
  call.received = required(result);
  require(isentrope_received(options_of(options).get(), &call));
}

void weights_at(const AttentionInput& input, const AttentionOptions& options,
                const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                const KeyWeights& result) {
  auto call = call_on<isentrope_weights_at_call>(input);
  call.lse = required(lse);
  call.keys = required(keys);
  call.weights = required(result.weights);
  call.by_score = array_of(result.by_score);
  call.by_bias = array_of(result.by_bias);
  require(isentrope_weights_at(options_of(options).get(), &call));
}

}  // namespace

check::Passes passes() { return {forward, backward, tangent, second_order, received, weights_at}; }

void forward_on_device(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream) {
  const isentrope_statistics statistics = statistics_of(output.statistics);
  const isentrope_forward_call call = call_of(input, output, statistics);
  require(
      isentrope_device_forward(options_of(options).get(), &call, device_of(kernels).get(), stream));
}

void backward_on_device(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& given, const AttentionGradients& result,
                        const char* kernels, void* stream) {
  const isentrope_statistics statistics = statistics_of(given.statistics),
                             d_statistics = statistics_of(given.d_statistics);
  const auto call = call_of(input, given, statistics, d_statistics, result);
  require(isentrope_device_backward(options_of(options).get(), &call, device_of(kernels).get(),
                                    stream));
}

}  // namespace isentrope::in_c
