#include "src/call/validate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "src/call/arguments.h"
#include "src/call/mask_parts.h"

namespace isentrope {
namespace {

void check_scales(const Checks& check, const char* name, const ConstTensor& tensor,
                  const View<const float, 4>& scales) {
  if (tensor.type != DType::i8) {
    if (scales) check.fail(name, "be absent unless k and v are 8-bit codes", "one");
    return;
  }
  check.groups(name, scales.extents[3], tensor.extents[3]);
  const auto [outer, heads, rows, columns] = tensor.extents;
  check.shape(name, scales, Shape<4>{outer, heads, rows, scales.extents[3]});
}

void check_tensors(const Checks& check, const AttentionInput& in) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  for (const auto& [name, tensor] : {std::pair{"q", &in.q}, {"k", &in.k}, {"v", &in.v}}) {
    double elements = 1;
    for (const std::int64_t extent : tensor->extents) {
      if (extent < 0) check.fail(name, "have no negative extent", text_of(tensor->extents));
      elements *= static_cast<double>(std::max<std::int64_t>(extent, 1));
    }
    // The limit holds for broadcast tensors too, so that products of extents are exact below.
    if (elements > 0x1p56) check.fail(name, "have at most 2^56 elements", text_of(tensor->extents));
  }
  if (dim < 1) check.fail("q", "have a head dimension of at least 1", text_of(in.q.extents));
  if (in.v.extents[3] < 1) {
    check.fail("v", "have a value dimension of at least 1", text_of(in.v.extents));
  }
  const std::int64_t kv_heads = in.k.extents[1];
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    check.fail("k", "have a number of heads that divides that of q",
               std::to_string(kv_heads) + " for " + std::to_string(heads));
  }
  check.shape("q", in.q, in.q.extents);
  const std::int64_t outer = in.pages ? in.k.extents[0] : batch, rows = in.k.extents[2];
  check.shape("k", in.k, Shape<4>{outer, kv_heads, rows, dim});
  check.shape("v", in.v, Shape<4>{outer, kv_heads, rows, in.v.extents[3]});
  check.not_codes("q", in.q.type);
  const bool are_codes = in.k.type == DType::i8;
  if (!are_codes && in.q.type != DType::f32) check.type("k", in.k.type, in.q.type, "q is");
  check.type("v", in.v.type, in.k.type, "k is");
  check_scales(check, "k_scale", in.k, in.k_scale);
  check_scales(check, "v_scale", in.v, in.v_scale);
}

void check_options(const Checks& check, const AttentionInput& in, const AttentionOptions& options) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::int64_t keys = in.keys();
  check_mask(check, options.mask, in.sequences(), queries, keys);
  if (!(std::isfinite(options.soft_cap) && options.soft_cap >= 0)) {
    check.fail("soft_cap", "be finite and not negative", std::to_string(options.soft_cap));
  }
  if (!(options.dropout_p >= 0 && options.dropout_p < 1)) {
    check.fail("dropout_p", "be at least 0 and below 1", std::to_string(options.dropout_p));
  }
  check.shape_if_given("attn_mask", options.attn_mask, Shape<4>{batch, heads, queries, keys});
  check.shape_if_given("bias", options.bias, Shape<4>{batch, heads, queries, keys});
  if (options.bias) check.not_codes("bias", options.bias.type);
  check.shape_if_given("bias_slopes", options.bias_slopes, Shape<1>{heads});
  if (!options.bias && options.bias_slopes)
    check.fail("bias_slopes", "be absent without a bias", "them");
  if (!options.bias && options.bias_hides)
    check.fail("bias_hides", "be false without a bias", "true");
  check.shape_if_given("sinks", options.sinks, Shape<1>{heads});
  check.shape_if_given("lambda", options.lambda, Shape<3>{batch, heads, queries});
  const std::int64_t rule_heads = options.rule.heads();
  if (!options.lambda && rule_heads != 1 && rule_heads != heads) {
    check.fail("rule",
               "have a number for each of the " + std::to_string(heads) + " heads, or one for all",
               std::to_string(rule_heads));
  }
}

}  // namespace

void add_inputs(ArrayOverlaps& arrays, const AttentionInput& in, const AttentionOptions& options) {
  arrays.read("q", in.q);
  arrays.read("k", in.k);
  arrays.read("v", in.v);
  arrays.read("block_table", in.pages.block_table);
  arrays.read("seqused_k", in.pages.seqused_k);
  arrays.read("cu_seq_q", in.pages.cu_seq_q);
  arrays.read("k_scale", in.k_scale);
  arrays.read("v_scale", in.v_scale);
  for_each_host_argument(options, [&](std::string_view name, const auto& argument) {
    if constexpr (requires { argument.strides; }) arrays.read(name, argument);
  });
}

bool needs_result(const ConstRowStatistics& derivatives, std::string_view result) {
  bool needed = result == "lse";
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) {
        needed = needed || (view && statistic.needs_result(result));
      },
      derivatives);
  return needed;
}

void check_results(ArrayOverlaps& check, const AttentionInput& in, const ConstTensor& output,
                   const ConstRowStatistics& statistics, const ConstRowStatistics& derivatives) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  check.read("output", output, Shape<4>{batch, heads, queries, in.v.extents[3]});
  check.not_codes("output", output.type);
  for_each_statistic(
      [&, rows = Shape<3>{batch, heads, queries}](const Statistic& statistic, const auto& view) {
        if (needs_result(derivatives, statistic.name)) check.shape(statistic.name, view, rows);
        check.read(statistic.name, view);
      },
      statistics);
}

void check_upstream(ArrayOverlaps& check, const AttentionInput& in, const ConstTensor& d_output,
                    const ConstRowStatistics& d_statistics) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  check.read_if_given("d_output", d_output, Shape<4>{batch, heads, queries, in.v.extents[3]});
  check.not_codes("d_output", d_output.type);
  for_each_statistic(
      [&, rows = Shape<3>{batch, heads, queries}](const Statistic& statistic, const auto& view) {
        const std::string name = "d_" + std::string(statistic.name);
        if (view && !statistic.differentiable())
          check.fail(name, "be absent: the statistic has no gradient", "one");
        check.read_if_given(name, view, rows);
      },
      d_statistics);
}

void check_gradients(ArrayOverlaps& check, const AttentionInput& in,
                     const AttentionGradients& result) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  check.write("dq", result.dq, in.q.extents);
  check.write("dk", result.dk, in.k.extents);
  check.write("dv", result.dv, in.v.extents);
  check.type_or_f32("dq", result.dq, in.q.type);
  check.type_or_f32("dk", result.dk, in.k.type);
  check.type_or_f32("dv", result.dv, in.k.type);
  check.write_if_given("d_bias", result.d_bias, Shape<4>{batch, heads, queries, in.k.extents[2]});
  check.write_if_given("d_lambda", result.d_lambda, Shape<3>{batch, heads, queries});
  check.write_if_given("d_sinks", result.d_sinks, Shape<1>{heads});
}

void validate_input(const char* function, const AttentionInput& in,
                    const AttentionOptions& options) {
  const Checks check(function);
  check_tensors(check, in);
  check_pages(check, in, options);
  check_options(check, in, options);
}

void check_differentiable(ArrayOverlaps& check, const AttentionInput& in,
                          const AttentionOptions& options) {
  if (in.pages) check.fail("block_table", "be absent: paged keys have no backward pass", "one");
  check.not_codes("k", in.k.type);
  check_tensors(check, in);
  check_options(check, in, options);
  add_inputs(check, in, options);
}

void validate_tables(const char* function, const AttentionInput& in,
                     const AttentionOptions& options) {
  const Checks check(function);
  check_page_contents(check, in);
  check_documents(check, options.mask, in.q.extents[2], in.keys());
}

void validate_output(const AttentionInput& in, const AttentionOptions& options,
                     const AttentionOutput& out) {
  ArrayOverlaps check("attention");
  add_inputs(check, in, options);
  const auto [batch, heads, queries, dim] = in.q.extents;
  check.write("output", out.output, Shape<4>{batch, heads, queries, in.v.extents[3]});
  check.type_or_f32("output", out.output, in.q.type);
  for_each_statistic(
      [&, rows = Shape<3>{batch, heads, queries}](const Statistic& statistic, const auto& view) {
        check.write_if_given(statistic.name, view, rows);
      },
      out.statistics);
  check.write_if_given("received", out.received, Shape<3>{in.sequences(), heads, in.keys()});
}

void validate_forward(const AttentionInput& in, const AttentionOptions& options,
                      const AttentionOutput& out) {
  validate_input("attention", in, options);
  validate_output(in, options, out);
  validate_tables("attention", in, options);
}

void validate_gradients(const AttentionInput& in, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result) {
  ArrayOverlaps check("attention_backward");
  check_differentiable(check, in, options);
  check_results(check, in, gradient.output, gradient.statistics, gradient.d_statistics);
  check_upstream(check, in, gradient.d_output, gradient.d_statistics);
  check_gradients(check, in, result);
}

void validate_backward(const AttentionInput& in, const AttentionOptions& options,
                       const AttentionGradientInput& gradient, const AttentionGradients& result) {
  validate_gradients(in, options, gradient, result);
  validate_tables("attention_backward", in, options);
}

}  // namespace isentrope
