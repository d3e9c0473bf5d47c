#include "bindings/c/arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "bindings/c/options.h"

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

// Array of a call, read as what takes it.
struct Given {
  const char* function;
  const char* name;
  const isentrope_array& array;

  template <typename T, std::size_t Rank>
  operator View<T, Rank>() const {
    return view_of<T, Rank>(function, name, array);
  }
  operator Tensor() const { return tensor_of(function, name, array); }
  operator ConstTensor() const { return tensor_of(function, name, array); }
};

// Reads the arrays of a call by the names of messages.
struct Reader {
  const char* function;

  Given operator()(const char* name, const isentrope_array& array) const {
    return {function, name, array};
  }
  [[nodiscard]] ConstRowStatistics read(const char* prefix, const isentrope_statistics* of) const {
    return statistics_of<const float, const std::int64_t>(function, prefix, of);
  }
  [[nodiscard]] RowStatistics written(const char* prefix, const isentrope_statistics* of) const {
    return statistics_of<float, std::int64_t>(function, prefix, of);
  }
  template <typename Call>
  [[nodiscard]] PagedKeys pages(const Call& c) const {
    return {(*this)("block_table", c.block_table), c.paged_keys, (*this)("seqused_k", c.seqused_k),
            (*this)("cu_seq_q", c.cu_seq_q)};
  }
  template <typename Call>
  [[nodiscard]] AttentionInput tensors(const Call& c) const {
    return {(*this)("q", c.q), (*this)("k", c.k), (*this)("v", c.v)};
  }
  // The input of statistics of keys, which have no values.
  template <typename Call>
  [[nodiscard]] AttentionInput keys(const Call& c) const {
    return {.q = (*this)("q", c.q),
            .k = (*this)("k", c.k),
            .v = {},
            .pages = pages(c),
            .k_scale = (*this)("k_scale", c.k_scale)};
  }
  template <typename Call>
  [[nodiscard]] AttentionGradients gradients(const Call& c) const {
    return {.dq = (*this)("dq", c.dq),
            .dk = (*this)("dk", c.dk),
            .dv = (*this)("dv", c.dv),
            .d_bias = (*this)("d_bias", c.d_bias),
            .d_lambda = (*this)("d_lambda", c.d_lambda),
            .d_sinks = (*this)("d_sinks", c.d_sinks)};
  }
};

}  // namespace

Arguments<AttentionOutput> arguments_of(const char* function, const isentrope_options* options,
                                        const isentrope_forward_call* call) {
  const isentrope_forward_call c = struct_of(function, "call", call);
  const Reader from{function};
  AttentionInput input = from.tensors(c);
  input.pages = from.pages(c);
  input.k_scale = from("k_scale", c.k_scale);
  input.v_scale = from("v_scale", c.v_scale);
  return {input, required(function, "options", options).options,
          AttentionOutput{.output = from("output", c.output),
                          .statistics = from.written("", c.statistics),
                          .received = from("received", c.received)}};
}

Arguments<AttentionGradientInput, AttentionGradients> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_backward_call* call) {
  const isentrope_backward_call c = struct_of(function, "call", call);
  const Reader from{function};
  return {from.tensors(c), required(function, "options", options).options,
          AttentionGradientInput{.output = from("output", c.output),
                                 .statistics = from.read("", c.statistics),
                                 .d_output = from("d_output", c.d_output),
                                 .d_statistics = from.read("d_", c.d_statistics)},
          from.gradients(c)};
}

Arguments<AttentionTangentInput, AttentionTangentOutput> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_tangent_call* call) {
  const isentrope_tangent_call c = struct_of(function, "call", call);
  const Reader from{function};
  return {from.tensors(c), required(function, "options", options).options,
          AttentionTangentInput{.output = from("output", c.output),
                                .statistics = from.read("", c.statistics),
                                .tangents = {.q = from("tangent of q", c.tangent_q),
                                             .k = from("tangent of k", c.tangent_k),
                                             .v = from("tangent of v", c.tangent_v),
                                             .bias = from("tangent of bias", c.tangent_bias),
                                             .lambda = from("tangent of lambda", c.tangent_lambda),
                                             .sinks = from("tangent of sinks", c.tangent_sinks)}},
          AttentionTangentOutput{.output = from("tangent of output", c.tangent_output),
                                 .statistics = from.written("tangent of ", c.tangent_statistics)}};
}

Arguments<AttentionSecondOrderInput, AttentionGradients> arguments_of(
    const char* function, const isentrope_options* options,
    const isentrope_second_order_call* call) {
  const isentrope_second_order_call c = struct_of(function, "call", call);
  const Reader from{function};
  const auto [input, with, of, result] = arguments_of(function, options, c.tangent);
  return {input, with,
          AttentionSecondOrderInput{.output = of.output,
                                    .statistics = of.statistics,
                                    .tangents = of.tangents,
                                    .output_tangent = result.output,
                                    .statistic_tangents = as_const(result.statistics),
                                    .d_output = from("d_output", c.d_output),
                                    .d_statistics = from.read("d_", c.d_statistics)},
          from.gradients(c)};
}

Arguments<KeyStatisticsRows, View<float, 3>> arguments_of(const char* function,
                                                          const isentrope_options* options,
                                                          const isentrope_received_call* call) {
  const isentrope_received_call c = struct_of(function, "call", call);
  const Reader from{function};
  return {from.keys(c), required(function, "options", options).options,
          KeyStatisticsRows{.lse = from("lse", c.lse), .weights = from("weights", c.weights)},
          from("received", c.received)};
}

Arguments<View<const float, 3>, View<const std::int64_t, 4>, KeyWeights> arguments_of(
    const char* function, const isentrope_options* options, const isentrope_weights_at_call* call) {
  const isentrope_weights_at_call c = struct_of(function, "call", call);
  const Reader from{function};
  return {from.keys(c), required(function, "options", options).options, from("lse", c.lse),
          from("keys", c.keys),
          KeyWeights{from("weights", c.weights), from("by_score", c.by_score),
                     from("by_bias", c.by_bias)}};
}

}  // namespace isentrope::c_api
