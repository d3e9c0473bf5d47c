// Generated problems against torch's own float64 attention, with gradients from its autograd. This
// independent oracle supports neither soft-caps nor sinks nor pages.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "isentrope/target.h"
#include "src/reference/dropout.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

// Returns false for rules that multiply the bias as well (T5's log scaling).
bool leaves_bias_alone(const ScaleRule& rule) {
  constexpr std::int64_t kLong = 1'000'000;
  return rule.on_bias({kLong, kLong - 1, kLong}, 64, 0) == 1;
}

bool torch_can_express(const Problem& p) {
  return p.soft_cap == 0 && !p.sink && p.page_size == 0 && !p.special && p.queries > 0 &&
         p.keys > 0 && p.batch > 0 && !p.slopes && (!p.bias || leaves_bias_alone(p.rule));
}

at::Tensor from(const View<const double, 4>& view) {
  return torch::from_blob(const_cast<double*>(view.data), view.extents, view.strides, at::kDouble)
      .clone();
}

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

// Returns a number for each weight: value(batch, head, query, key).
template <typename T, typename Value>
at::Tensor by_weight(const Problem& p, const Value& value) {
  at::Tensor numbers =
      at::empty({p.batch, p.heads, p.queries, p.keys}, c10::CppTypeToScalarType<T>::value);
  auto at = numbers.accessor<T, 4>();
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < p.queries; ++i) {
        for (std::int64_t j = 0; j < p.keys; ++j) at[b][h][i][j] = value(b, h, i, j);
      }
    }
  }
  return numbers;
}

// Returns the bias, with -inf where a key is hidden.
at::Tensor additive_mask(const Problem& p, const AttentionOptions& options) {
  return by_weight<double>(p, [&](auto b, auto h, auto i, auto j) -> double {
    const bool hidden = !row_view(options.mask, b, i, p.queries, p.keys).keys.holds(j) ||
                        (options.attn_mask && options.attn_mask(b, h, i, j) == 0);
    if (hidden) return -std::numeric_limits<double>::infinity();
    return options.bias ? options.bias(b, h, i, j) : 0;
  });
}

at::Tensor kept_weights(const Problem& p, const AttentionOptions& options) {
  return by_weight<bool>(p, [&](auto b, auto h, auto i, auto j) {
    return options.dropout_p == 0 || reference::dropout_factor(options, b, h, i, j) != 0;
  });
}

struct TorchResults {
  std::vector<double> output, dq, dk, dv, d_bias;
};

TorchResults torch_results(const Data& data, const std::vector<double>& lambda,
                           const std::vector<double>& d_output) {
  const Problem& p = data.problem;
  const reference::Input in = data.reference_input();
  const at::Tensor q = from(in.q).requires_grad_(), k = from(in.k).requires_grad_(),
                   v = from(in.v).requires_grad_();
  at::Tensor mask = additive_mask(p, data.options()).requires_grad_();
  const at::Tensor scale =
      torch::tensor(lambda, at::kDouble).view({p.batch, p.heads, p.queries, 1});
  const auto repeated = [&](const at::Tensor& t) {
    return t.repeat_interleave(p.heads / p.kv_heads, 1);
  };
  const AttentionOptions options = data.options();
  const at::Tensor output = std::get<0>(at::_scaled_dot_product_attention_math(
      q * scale, repeated(k), repeated(v), mask, static_cast<double>(options.dropout_p), false,
      kept_weights(p, options), 1.0));
  output.backward(torch::tensor(d_output, at::kDouble).view_as(output));
  const at::Tensor none = at::zeros({0}, at::kDouble);
  return {values(output), values(q.grad()), values(k.grad()), values(v.grad()),
          data.options().bias ? values(mask.grad()) : values(none)};
}

// Compares the active target with torch; the reference provides only the budget's magnitudes.
void expect_torch_agrees(const Problem& problem) {
  const Data data(problem);
  reference::Result forward = reference::attention_forward(data.reference_input(), data.options());
  const reference::GradientInput upstream{.d_output = random_gradient(problem).d_output};
  reference::Gradients gradients =
      reference::attention_backward(data.reference_input(), data.options(), upstream);

  TorchResults want = torch_results(data, forward.lambda, upstream.d_output);
  forward.output = std::move(want.output);
  gradients.dq = std::move(want.dq);
  gradients.dk = std::move(want.dk);
  gradients.dv = std::move(want.dv);
  if (!want.d_bias.empty()) gradients.d_bias = std::move(want.d_bias);

  const ForwardResult got = run_forward(data);
  const Arithmetic arithmetic = arithmetic_of(data, forward);
  const Ratio ratio = forward_error_over_budget(problem, forward, got, arithmetic);
  EXPECT_LE(ratio.worst, 1) << text_of(problem) << ": " << ratio.where;
  const Ratio backward = backward_error_over_budget(problem, forward, gradients,
                                                    run_backward(data, got, upstream), arithmetic);
  EXPECT_LE(backward.worst, 1) << text_of(problem) << ": " << backward.where;
}

TEST(TorchConformance, GeneratedProblemsAgreeWithTorchInFloat64) {
  int compared = 0;
  for (std::int64_t i = 0; compared < 300; ++i) {
    const Problem problem = generated_problem(7, i);
    if (!torch_can_express(problem)) continue;
    ++compared;
    expect_torch_agrees(problem);
  }
}

}  // namespace
}  // namespace isentrope::check
