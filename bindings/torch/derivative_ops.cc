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

namespace {

TangentResults attention_tangent(const CallArguments& call, std::int64_t wanted,
                                 const TorchTensor& output, const TorchTensor& statistics,
                                 const TangentArguments& tangents) {
  if (is_float64(call.q)) {
    const AttentionOptions options = validated_options("attention_tangent", call);
    return results_of(
        reference::attention_tangent(call.input_in_float64(), options, tangents.views_in_float64()),
        call, wanted);
  }
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
  return results;
}

TangentResults attention_second_tangent(const CallArguments& call, std::int64_t wanted,
                                        const TorchTensor& /*output*/,
                                        const TorchTensor& /*statistics*/,
                                        const TangentArguments& first,
                                        const TangentArguments& second) {
  const AttentionOptions options = validated_options("attention_second_tangent", call);
  return results_of(
      reference::attention_second_tangent(call.input_in_float64(), options,
                                          first.views_in_float64(), second.views_in_float64()),
      call, wanted);
}

GradientResults attention_second_order(const CallArguments& call, std::int64_t wanted,
                                       const TorchTensor& output, const TorchTensor& statistics,
                                       const TangentArguments& tangents,
                                       const TorchTensor& t_output, const TorchTensor& t_statistics,
                                       const OptionalTensor& d_output,
                                       const OptionalTensor& d_statistics,
                                       const std::array<bool, 3>& wants) {
  if (is_float64(call.q)) {
    const AttentionOptions options = validated_options("attention_second_order", call);
    return results_of(reference::attention_second_order(
                          call.input_in_float64(), options, tangents.views_in_float64(),
                          upstream_of(call, wanted, d_output, d_statistics)),
                      call, wants);
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
  return results;
}

}  // namespace

void define_derivatives(const Library& library) {
  const std::string arguments = "(" + call_schema() + ", int wanted, Tensor output, " +
                                "Tensor statistics, Tensor? t_q, Tensor? t_k, Tensor? t_v, " +
                                "Tensor? t_bias, Tensor? t_lambda, Tensor? t_sinks";
  const std::string results = ") -> (Tensor t_output, Tensor t_statistics)";
  library.on_cpu<attention_tangent>("attention_tangent" + arguments + results);
  library.on_cpu<attention_second_tangent>(
      "attention_second_tangent" + arguments + ", Tensor? u_q, Tensor? u_k, Tensor? u_v, " +
      "Tensor? u_bias, Tensor? u_lambda, Tensor? u_sinks" + results);
  library.on_cpu<attention_second_order>("attention_second_order" + arguments +
                                         ", Tensor t_output, Tensor t_statistics" +
                                         GradientResults::kArguments + GradientResults::kResults);
}

}  // namespace isentrope::stable
