// Operators of the tangent pass and of the second-order pass.

#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "bindings/torch/call.h"
#include "bindings/torch/derivatives.h"
#include "bindings/torch/float64.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/results.h"
#include "isentrope/derivatives.h"

namespace isentrope::stable {
namespace {

Rows rows_of(const AttentionInput& in) {
  return {in.q.extents[0], in.q.extents[1], in.q.extents[2]};
}

}  // namespace

AttentionTangents TangentArguments::views() const {
  return {.q = number_view("tangent of q", q),
          .k = number_view("tangent of k", k),
          .v = number_view("tangent of v", v),
          .bias = view_of<float, 4>("tangent of bias", bias),
          .lambda = view_of<float, 3>("tangent of lambda", lambda),
          .sinks = view_of<float, 1>("tangent of sinks", sinks)};
}

TangentResults::TangentResults(const CallArguments& call, std::int64_t wanted) {
  Results results(call.q, call.v.size(3), wanted & (kSupport - 1));
  const std::int64_t numbers =
      std::reduce(results.shared.sizes().begin(), results.shared.sizes().end(), std::int64_t{1},
                  std::multiplies<>());
  const std::size_t size = is_float64(call.q) ? sizeof(double) : sizeof(float);
  std::memset(results.shared.write(), 0, static_cast<std::size_t>(numbers) * size);
  output = std::move(results.output);
  statistics = std::move(results.shared);
}

void TangentResults::put(StableIValue* stack) {
  stack[0] = to_value(std::move(output));
  stack[1] = to_value(std::move(statistics));
}

void attention_tangent(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  const TorchTensor output = from.tensor(), statistics = from.tensor();
  const TangentArguments tangents(from);
  if (is_float64(call.q)) return attention_tangent_in_float64(call, wanted, tangents, stack);
  const AttentionInput in = call.input();
  const AttentionOptions options = call.options();
  TangentResults results(call, wanted);
  isentrope::attention_tangent(
      in, options,
      {.output = number_view("output", output),
       .statistics = statistic_views("statistics", statistics, wanted, rows_of(in)),
       .tangents = tangents.views()},
      {.output = output_view(results.output),
       .statistics = differentiable(slices_of<RowStatistics>(
           static_cast<float*>(results.statistics.write()), wanted, rows_of(in)))});
  results.put(stack);
}

void attention_second_tangent(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  const TorchTensor output = from.tensor(), statistics = from.tensor();
  const TangentArguments first(from), second(from);
  attention_second_tangent_in_float64(call, wanted, first, second, stack);
}

void attention_second_order(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const CallArguments call(from);
  const std::int64_t wanted = from.integer();
  const TorchTensor output = from.tensor(), statistics = from.tensor();
  const TangentArguments tangents(from);
  const TorchTensor t_output = from.tensor(), t_statistics = from.tensor();
  const TorchTensor d_output = from.optional_tensor(), d_statistics = from.optional_tensor();
  const std::array<bool, 3> wants{from.integer() != 0, from.integer() != 0, from.integer() != 0};
  if (is_float64(call.q)) {
    return attention_second_order_in_float64(call, wanted, tangents, d_output, d_statistics, wants,
                                             stack);
  }
  const AttentionInput in = call.input();
  const auto views = [&](const char* name, const TorchTensor& tensor) {
    return statistic_views(name, tensor, wanted, rows_of(in));
  };
  GradientResults results(call, wants);
  isentrope::attention_second_order(
      in, call.options(),
      {.output = number_view("output", output),
       .statistics = views("statistics", statistics),
       .tangents = tangents.views(),
       .output_tangent = number_view("t_output", t_output),
       .statistic_tangents = views("t_statistics", t_statistics),
       .d_output = number_view("d_output", d_output),
       .d_statistics = differentiable(views("d_statistics", d_statistics))},
      results.views());
  results.put(stack);
}

}  // namespace isentrope::stable
