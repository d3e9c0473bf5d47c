// Validation of the tangent pass and of the second-order pass.

#include <string>
#include <tuple>

#include "src/call/validate.h"

namespace isentrope {
namespace {

void check_tangents(const Checks& check, const AttentionInput& in, const AttentionOptions& options,
                    const AttentionTangents& tangents) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  using Tensors = std::tuple<std::string, const ConstTensor*, const ConstTensor*>;
  for (const auto& [of, tangent, tensor] :
       {Tensors{"q", &tangents.q, &in.q}, {"k", &tangents.k, &in.k}, {"v", &tangents.v, &in.v}}) {
    if (!*tangent) continue;
    const std::string name = "tangent of " + of;
    check.shape(name.c_str(), *tangent, tensor->extents);
    check.type(name.c_str(), tangent->type, tensor->type, of + " is");
  }
  if (tangents.bias && !options.bias)
    check.fail("tangent of bias", "be absent without a bias", "one");
  if (tangents.sinks && !options.sinks)
    check.fail("tangent of sinks", "be absent without sinks", "one");
  check.shape_if_given("tangent of bias", tangents.bias,
                       Shape<4>{batch, heads, queries, in.k.extents[2]});
  check.shape_if_given("tangent of lambda", tangents.lambda, Shape<3>{batch, heads, queries});
  check.shape_if_given("tangent of sinks", tangents.sinks, Shape<1>{heads});
}

void read_tangents(ArrayOverlaps& arrays, const AttentionTangents& tangents) {
  arrays.read("tangent of q", tangents.q);
  arrays.read("tangent of k", tangents.k);
  arrays.read("tangent of v", tangents.v);
  arrays.read("tangent of bias", tangents.bias);
  arrays.read("tangent of lambda", tangents.lambda);
  arrays.read("tangent of sinks", tangents.sinks);
}

std::string tangent_name(const Statistic& statistic) {
  return "tangent of " + std::string(statistic.name);
}

void check_tangent_places(const AttentionInput& in, const AttentionOptions& options,
                          const AttentionTangentInput& tangent,
                          const AttentionTangentOutput& result) {
  ArrayOverlaps arrays("attention_tangent");
  add_inputs(arrays, in, options);
  read_tangents(arrays, tangent.tangents);
  arrays.read("output", tangent.output);
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) { arrays.read(statistic.name, view); },
      tangent.statistics);
  arrays.write("tangent of output", result.output);
  for_each_statistic([&](const Statistic& statistic,
                         const auto& view) { arrays.write(tangent_name(statistic), view); },
                     result.statistics);
}

void check_second_order_places(const AttentionInput& in, const AttentionOptions& options,
                               const AttentionSecondOrderInput& second,
                               const AttentionGradients& result) {
  ArrayOverlaps arrays("attention_second_order");
  add_inputs(arrays, in, options);
  read_tangents(arrays, second.tangents);
  arrays.read("output", second.output);
  arrays.read("tangent of output", second.output_tangent);
  arrays.read("d_output", second.d_output);
  for_each_statistic(
      [&](const Statistic& statistic, const auto& of_forward, const auto& tangent,
          const auto& upstream) {
        arrays.read(statistic.name, of_forward);
        arrays.read(tangent_name(statistic), tangent);
        arrays.read("d_" + std::string(statistic.name), upstream);
      },
      second.statistics, second.statistic_tangents, second.d_statistics);
  add_gradients(arrays, result);
}

}  // namespace

void validate_tangent(const AttentionInput& in, const AttentionOptions& options,
                      const AttentionTangentInput& tangent, const AttentionTangentOutput& result) {
  const Checks check("attention_tangent");
  validate_differentiable("attention_tangent", in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const Shape<3> rows = {batch, heads, queries};
  const Shape<4> output = {batch, heads, queries, in.v.extents[3]};
  check.shape("output", tangent.output, output);
  check.not_codes("output", tangent.output.type);
  check_tangents(check, in, options, tangent.tangents);
  check.output("tangent of output", result.output, output);
  check.type_or_f32("tangent of output", result.output, in.q.type);
  const ConstRowStatistics requested = as_const(result.statistics);
  for_each_statistic(
      [&](const Statistic& statistic, const auto& of_forward, const auto& view) {
        const std::string name = tangent_name(statistic);
        if (view && !statistic.differentiable())
          check.fail(name, "be absent: the statistic has no derivative", "one");
        check.output_if_given(name.c_str(), view, rows);
        if (needs_result(requested, statistic.name))
          check.shape(statistic.name.data(), of_forward, rows);
      },
      tangent.statistics, result.statistics);
  check_tangent_places(in, options, tangent, result);
  validate_tables("attention_tangent", in, options);
}

void validate_second_order(const AttentionInput& in, const AttentionOptions& options,
                           const AttentionSecondOrderInput& second,
                           const AttentionGradients& result) {
  const Checks check("attention_second_order");
  validate_differentiable("attention_second_order", in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const Shape<3> rows = {batch, heads, queries};
  const Shape<4> output = {batch, heads, queries, in.v.extents[3]};
  check_tangents(check, in, options, second.tangents);
  check_upstream(check, in, second.output, second.statistics, second.d_output, second.d_statistics);
  check.shape("tangent of output", second.output_tangent, output);
  check.not_codes("tangent of output", second.output_tangent.type);
  for_each_statistic(
      [&](const Statistic& statistic, const auto& tangent) {
        if (statistic.differentiable() && needs_result(second.d_statistics, statistic.name))
          check.shape(tangent_name(statistic).c_str(), tangent, rows);
      },
      second.statistic_tangents);
  check_gradient_arrays(check, in, result);
  check_second_order_places(in, options, second, result);
  validate_tables("attention_second_order", in, options);
}

}  // namespace isentrope
