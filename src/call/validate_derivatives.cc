// Validation of the tangent pass and of the second-order pass.

#include <string>
#include <tuple>

#include "src/call/validate.h"

namespace isentrope {
namespace {

std::string tangent_of(std::string_view name) { return "tangent of " + std::string(name); }

void check_tangents(ArrayOverlaps& check, const AttentionInput& in, const AttentionOptions& options,
                    const AttentionTangents& tangents) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  using Tensors = std::tuple<std::string, const ConstTensor*, const ConstTensor*>;
  for (const auto& [of, tangent, tensor] :
       {Tensors{"q", &tangents.q, &in.q}, {"k", &tangents.k, &in.k}, {"v", &tangents.v, &in.v}}) {
    if (!*tangent) continue;
    check.read(tangent_of(of).c_str(), *tangent, tensor->extents);
    check.type(tangent_of(of).c_str(), tangent->type, tensor->type, of + " is");
  }
  if (tangents.bias && !options.bias)
    check.fail("tangent of bias", "be absent without a bias", "one");
  if (tangents.sinks && !options.sinks)
    check.fail("tangent of sinks", "be absent without sinks", "one");
  check.read_if_given("tangent of bias", tangents.bias,
                      Shape<4>{batch, heads, queries, in.k.extents[2]});
  check.read_if_given("tangent of lambda", tangents.lambda, Shape<3>{batch, heads, queries});
  check.read_if_given("tangent of sinks", tangents.sinks, Shape<1>{heads});
}

}  // namespace

void validate_tangent(const AttentionInput& in, const AttentionOptions& options,
                      const AttentionTangentInput& tangent, const AttentionTangentOutput& result) {
  ArrayOverlaps check("attention_tangent");
  check_differentiable(check, in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  check_results(check, in, tangent.output, tangent.statistics, as_const(result.statistics));
  check_tangents(check, in, options, tangent.tangents);
  check.write("tangent of output", result.output, Shape<4>{batch, heads, queries, in.v.extents[3]});
  check.type_or_f32("tangent of output", result.output, in.q.type);
  for_each_statistic(
      [&, rows = Shape<3>{batch, heads, queries}](const Statistic& statistic, const auto& view) {
        const std::string name = tangent_of(statistic.name);
        if (view && !statistic.differentiable())
          check.fail(name, "be absent: the statistic has no derivative", "one");
        check.write_if_given(name, view, rows);
      },
      result.statistics);
  validate_tables("attention_tangent", in, options);
}

void validate_second_order(const AttentionInput& in, const AttentionOptions& options,
                           const AttentionSecondOrderInput& second,
                           const AttentionGradients& result) {
  ArrayOverlaps check("attention_second_order");
  check_differentiable(check, in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  check_tangents(check, in, options, second.tangents);
  check_results(check, in, second.output, second.statistics, second.d_statistics);
  check_upstream(check, in, second.d_output, second.d_statistics);
  check.read("tangent of output", second.output_tangent,
             Shape<4>{batch, heads, queries, in.v.extents[3]});
  check.not_codes("tangent of output", second.output_tangent.type);
  for_each_statistic(
      [&, rows = Shape<3>{batch, heads, queries}](const Statistic& statistic, const auto& tangent) {
        const std::string name = tangent_of(statistic.name);
        if (statistic.differentiable() && needs_result(second.d_statistics, statistic.name))
          check.shape(name.c_str(), tangent, rows);
        check.read(name, tangent);
      },
      second.statistic_tangents);
  check_gradients(check, in, result);
  validate_tables("attention_second_order", in, options);
}

}  // namespace isentrope
