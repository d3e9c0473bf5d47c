#include "bindings/c/arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "bindings/c/options.h"
#include "bindings/c/parallel.h"

namespace isentrope::c_api {
namespace {

// Returns the size of a struct in the first release, 0.2.0, even if it has grown since.
template <typename Struct>
constexpr std::size_t least_size_of() {
  if constexpr (std::is_same_v<Struct, isentrope_forward_call>)
    return offsetof(isentrope_forward_call, seqused_k);
  return sizeof(Struct);
}

// Returns the caller's struct as this version has it. A caller of an older version has fewer
// fields; the missing ones count as not given. A caller of a newer version must leave fields empty
// that this version does not know.
template <typename Struct>
Struct struct_of(const char* function, const std::string& name, const Struct* pointer) {
  const Struct& caller = required(function, name.c_str(), pointer);
  constexpr std::size_t kLeast = least_size_of<Struct>(), kMost = 1 << 16;
  const std::size_t size = caller.struct_size;
  if (size < kLeast || size > kMost) {
    fail(function, name + ".struct_size",
         "be the size of the struct, " + std::to_string(sizeof(Struct)), std::to_string(size));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(pointer);
  if (std::any_of(bytes + sizeof(Struct), bytes + size,
                  [](unsigned char byte) { return byte != 0; })) {
    fail(function, name, "be 0 past the fields of version " ISENTROPE_VERSION, "other bytes");
  }
  Struct known{};
  std::memcpy(&known, pointer, std::min(size, sizeof(Struct)));
  return known;
}

// The statistics after the size, in the order of the list.
template <typename T, typename Count>
StatisticFields<View<T, 3>, View<Count, 3>> statistics_of(const char* function,
                                                          const std::string& prefix,
                                                          const isentrope_statistics* statistics) {
  using Arrays = StatisticFields<isentrope_array>;
  static_assert(sizeof(isentrope_statistics) ==
                offsetof(isentrope_statistics, lse) + sizeof(Arrays));
  StatisticFields<View<T, 3>, View<Count, 3>> views;
  if (statistics == nullptr) return views;
  const isentrope_statistics known = struct_of(function, "statistics", statistics);
  Arrays arrays;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&known);
  std::memcpy(&arrays, bytes + offsetof(isentrope_statistics, lse), sizeof arrays);
  for_each_statistic(
      [&]<typename Number>(const Statistic& statistic, const isentrope_array& array,
                           View<Number, 3>& view) {
        const std::string name = prefix + std::string(statistic.name);
        view = view_of<Number, 3>(function, name.c_str(), array);
      },
      arrays, views);
  return views;
}

// Returns the input of statistics of keys, which have no values.
template <typename Call>
AttentionInput keys_of(const char* function, const Call& c) {
  return {
      .q = tensor_of(function, "q", c.q),
      .k = tensor_of(function, "k", c.k),
      .v = {},
      .pages = {view_of<const std::int32_t, 2>(function, "block_table", c.block_table),
                c.paged_keys, view_of<const std::int64_t, 1>(function, "seqused_k", c.seqused_k),
                view_of<const std::int64_t, 1>(function, "cu_seq_q", c.cu_seq_q)},
      .k_scale = view_of<const float, 4>(function, "k_scale", c.k_scale)};
}

// The arrays of gradients that a call writes.
template <typename Call>
AttentionGradients gradients_of(const char* function, const Call& c) {
  return {.dq = tensor_of(function, "dq", c.dq),
          .dk = tensor_of(function, "dk", c.dk),
          .dv = tensor_of(function, "dv", c.dv),
          .d_bias = view_of<float, 4>(function, "d_bias", c.d_bias),
          .d_lambda = view_of<float, 3>(function, "d_lambda", c.d_lambda),
          .d_sinks = view_of<float, 1>(function, "d_sinks", c.d_sinks)};
}

AttentionOptions options_of(const char* function, const isentrope_options* options) {
  AttentionOptions copy = required(function, "options", options).options;
  if (!copy.parallel_for) copy.parallel_for = on_pool();
  return copy;
}

}  // namespace

ForwardArguments forward_arguments(const char* function, const isentrope_options* options,
                                   const isentrope_forward_call* call) {
  const isentrope_forward_call c = struct_of(function, "call", call);
  const auto tensor = [&](const char* name, const isentrope_array& array) {
    return tensor_of(function, name, array);
  };
  return {
      .input = {.q = tensor("q", c.q),
                .k = tensor("k", c.k),
                .v = tensor("v", c.v),
                .pages = {view_of<const std::int32_t, 2>(function, "block_table", c.block_table),
                          c.paged_keys,
                          view_of<const std::int64_t, 1>(function, "seqused_k", c.seqused_k),
                          view_of<const std::int64_t, 1>(function, "cu_seq_q", c.cu_seq_q)},
                .k_scale = view_of<const float, 4>(function, "k_scale", c.k_scale),
                .v_scale = view_of<const float, 4>(function, "v_scale", c.v_scale)},
      .options = options_of(function, options),
      .output = {.output = tensor("output", c.output),
                 .statistics = statistics_of<float, std::int64_t>(function, "", c.statistics),
                 .received = view_of<float, 3>(function, "received", c.received)}};
}

BackwardArguments backward_arguments(const char* function, const isentrope_options* options,
                                     const isentrope_backward_call* call) {
  const isentrope_backward_call c = struct_of(function, "call", call);
  const auto tensor = [&](const char* name, const isentrope_array& array) {
    return tensor_of(function, name, array);
  };
  const auto statistics = [&](const char* prefix, const isentrope_statistics* arrays) {
    return statistics_of<const float, const std::int64_t>(function, prefix, arrays);
  };
  return {.input = {.q = tensor("q", c.q), .k = tensor("k", c.k), .v = tensor("v", c.v)},
          .options = options_of(function, options),
          .gradient = {.output = tensor("output", c.output),
                       .statistics = statistics("", c.statistics),
                       .d_output = tensor("d_output", c.d_output),
                       .d_statistics = statistics("d_", c.d_statistics)},
          .result = gradients_of(function, c)};
}

TangentArguments tangent_arguments(const char* function, const isentrope_options* options,
                                   const isentrope_tangent_call* call) {
  const isentrope_tangent_call c = struct_of(function, "call", call);
  const auto tensor = [&](const char* name, const isentrope_array& array) {
    return tensor_of(function, name, array);
  };
  return {.input = {.q = tensor("q", c.q), .k = tensor("k", c.k), .v = tensor("v", c.v)},
          .options = options_of(function, options),
          .tangent = {.output = tensor("output", c.output),
                      .statistics = statistics_of<const float, const std::int64_t>(function, "",
                                                                                   c.statistics),
                      .tangents = {.q = tensor("tangent of q", c.tangent_q),
                                   .k = tensor("tangent of k", c.tangent_k),
                                   .v = tensor("tangent of v", c.tangent_v),
                                   .bias = view_of<const float, 4>(function, "tangent of bias",
                                                                   c.tangent_bias),
                                   .lambda = view_of<const float, 3>(function, "tangent of lambda",
                                                                     c.tangent_lambda),
                                   .sinks = view_of<const float, 1>(function, "tangent of sinks",
                                                                    c.tangent_sinks)}},
          .result = {.output = tensor("tangent of output", c.tangent_output),
                     .statistics = statistics_of<float, std::int64_t>(function, "tangent of ",
                                                                      c.tangent_statistics)}};
}

SecondOrderArguments second_order_arguments(const char* function, const isentrope_options* options,
                                            const isentrope_second_order_call* call) {
  const isentrope_second_order_call c = struct_of(function, "call", call);
  const TangentArguments of = tangent_arguments(function, options, c.tangent);
  return {.input = of.input,
          .options = of.options,
          .second = {.output = of.tangent.output,
                     .statistics = of.tangent.statistics,
                     .tangents = of.tangent.tangents,
                     .output_tangent = of.result.output,
                     .statistic_tangents = as_const(of.result.statistics),
                     .d_output = tensor_of(function, "d_output", c.d_output),
                     .d_statistics = statistics_of<const float, const std::int64_t>(
                         function, "d_", c.d_statistics)},
          .result = gradients_of(function, c)};
}

ReceivedArguments received_arguments(const char* function, const isentrope_options* options,
                                     const isentrope_received_call* call) {
  const isentrope_received_call c = struct_of(function, "call", call);
  const auto rows = [&](const char* name, const isentrope_array& array) {
    return view_of<const float, 3>(function, name, array);
  };
  return {.input = keys_of(function, c),
          .options = options_of(function, options),
          .rows = {.lse = rows("lse", c.lse), .weights = rows("weights", c.weights)},
          .result = view_of<float, 3>(function, "received", c.received)};
}

WeightsAtArguments weights_at_arguments(const char* function, const isentrope_options* options,
                                        const isentrope_weights_at_call* call) {
  const isentrope_weights_at_call c = struct_of(function, "call", call);
  const auto chosen = [&](const char* name, const isentrope_array& array) {
    return view_of<float, 4>(function, name, array);
  };
  return {.input = keys_of(function, c),
          .options = options_of(function, options),
          .lse = view_of<const float, 3>(function, "lse", c.lse),
          .keys = view_of<const std::int64_t, 4>(function, "keys", c.keys),
          .result = {chosen("weights", c.weights), chosen("by_score", c.by_score),
                     chosen("by_bias", c.by_bias)}};
}

}  // namespace isentrope::c_api
