#include "isentrope/libtorch/attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>
#include <type_traits>

#include "bindings/torch/threads.h"
#include "isentrope/attention.h"
#include "isentrope/error.h"

namespace isentrope {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns a view of the tensor's memory. The caller keeps the tensor alive.
template <typename T, std::size_t Rank>
View<T, Rank> view_of(const at::Tensor& tensor) {
  View<T, Rank> view;
  if (!tensor.defined()) return view;
  view.data = static_cast<T*>(const_cast<void*>(tensor.const_data_ptr()));
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    view.extents[axis] = tensor.size(static_cast<std::int64_t>(axis));
    view.strides[axis] = tensor.stride(static_cast<std::int64_t>(axis));
  }
  return view;
}

void check(const char* name, const at::Tensor& tensor, std::int64_t dimensions) {
  const auto fail = [&](const std::string& required, const std::string& got) {
    throw Error("[torch_attention] " + std::string(name) + " must " + required + "; got " + got);
  };
  if (!tensor.defined()) fail("be a tensor", "an undefined one");
  if (tensor.dim() != dimensions) {
    fail("have " + std::to_string(dimensions) + " dimensions", std::to_string(tensor.dim()));
  }
  if (!tensor.device().is_cpu()) fail("be on the CPU", tensor.device().str());
  if (tensor.scalar_type() != at::kFloat) fail("be float32", c10::toString(tensor.scalar_type()));
}

// Returns a view of this shape, of stride 0 along broadcast dimensions; undefined stays undefined.
at::Tensor broadcast(const char* name, const at::Tensor& tensor, at::IntArrayRef shape) {
  if (!tensor.defined()) return tensor;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t extent = tensor.size(static_cast<std::int64_t>(axis));
    if (extent == 1 || extent == shape[axis]) continue;
    throw Error("[torch_attention] " + std::string(name) + " must broadcast to " + c10::str(shape) +
                "; got " + c10::str(tensor.sizes()));
  }
  return tensor.expand(shape);
}

// Returns [batch, heads, rows, columns] in the layout of `like`. If heads are inside rows, as in
// projections, the result can be viewed as [batch, rows, heads * columns] without a copy.
at::Tensor empty_laid_out_as(const at::Tensor& like, std::int64_t rows, std::int64_t columns) {
  const std::int64_t batch = like.size(0), heads = like.size(1);
  if (like.stride(1) < like.stride(2)) {
    return at::empty({batch, rows, heads, columns}, like.options()).transpose(1, 2);
  }
  return at::empty({batch, heads, rows, columns}, like.options());
}

AttentionInput input_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return {view_of<const float, 4>(q), view_of<const float, 4>(k), view_of<const float, 4>(v)};
}

// Returns views of one tensor for each statistic, in the order of the list.
ConstRowStatistics statistics_of(const at::Tensor* tensors) {
  ConstRowStatistics views;
  for_each_statistic(
      [&]<typename T>(const Statistic&, View<T, 3>& view) { view = view_of<T, 3>(*tensors++); },
      views);
  return views;
}

// Returns the options that are not saved as tensors between forward and backward pass.
AttentionOptions options_of(const ScaleRule& rule, const Mask& mask, const at::Tensor& bias,
                            const at::Tensor& lambda) {
  return {.rule = rule,
          .mask = mask,
          .bias = view_of<const float, 4>(bias),
          .lambda = view_of<const float, 3>(lambda),
          .parallel_for = run_on_torch_threads};
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::optional<at::Tensor>& bias,
                               const std::optional<at::Tensor>& lambda, const ScaleRule& rule,
                               const Mask& mask) {
    const auto rows = [&](at::ScalarType type) {
      return at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(type));
    };
    const at::Tensor output = empty_laid_out_as(q, q.size(2), v.size(3));
    variable_list results{output}, fixed;
    RowStatistics views;
    for_each_statistic(
        [&]<typename T>(const Statistic& statistic, View<T, 3>& view) {
          results.push_back(rows(std::is_same_v<T, float> ? at::kFloat : at::kLong));
          view = view_of<T, 3>(results.back());
          if (!statistic.differentiable()) fixed.push_back(results.back());
        },
        views);
    variable_list saved{q, k, v, bias.value_or(at::Tensor()), lambda.value_or(at::Tensor())};
    attention_forward(input_of(q, k, v), options_of(rule, mask, saved[3], saved[4]),
                      {view_of<float, 4>(output), views});
    saved.insert(saved.end(), results.begin(), results.end());
    context->save_for_backward(saved);
    context->set_materialize_grads(false);
    context->mark_non_differentiable(fixed);
    // Rule and mask are saved as values, because they are no tensors.
    context->saved_data["rule"] = rule.text();
    context->saved_data["causal"] = static_cast<std::int64_t>(mask.causal);
    context->saved_data["window_left"] = mask.window_left;
    context->saved_data["window_right"] = mask.window_right;
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    if (at::GradMode::is_enabled()) {
      throw Error("[torch_attention] double backward is not implemented; got create_graph = true");
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &bias = saved[3],
                     &lambda = saved[4];
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    const Mask mask{.causal = static_cast<Causal>(number("causal")),
                    .window_left = number("window_left"),
                    .window_right = number("window_right")};
    const ScaleRule rule = ScaleRule::parse(context->saved_data["rule"].toStringRef());
    const auto gradient_of = [](const at::Tensor& tensor) {
      return tensor.defined() && tensor.requires_grad()
                 ? at::empty(tensor.sizes(), tensor.options())
                 : at::Tensor();
    };
    const at::Tensor d_bias = gradient_of(bias), d_lambda = gradient_of(lambda);
    const at::Tensor dq = empty_laid_out_as(q, q.size(2), q.size(3));
    const at::Tensor dk = empty_laid_out_as(k, k.size(2), k.size(3));
    const at::Tensor dv = empty_laid_out_as(v, v.size(2), v.size(3));
    attention_backward(input_of(q, k, v), options_of(rule, mask, bias, lambda),
                       {.output = view_of<const float, 4>(saved[5]),
                        .statistics = statistics_of(saved.data() + 6),
                        .d_output = view_of<const float, 4>(upstream[0]),
                        .d_statistics = statistics_of(upstream.data() + 1)},
                       {view_of<float, 4>(dq), view_of<float, 4>(dk), view_of<float, 4>(dv),
                        view_of<float, 4>(d_bias), view_of<float, 3>(d_lambda)});
    return {dq, dk, dv, d_bias, d_lambda, {}, {}};
  }
};

}  // namespace

TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ScaleRule& rule, const TorchOptions& options) {
  check("q", q, 4);
  check("k", k, 4);
  check("v", v, 4);
  if (options.bias.defined()) check("bias", options.bias, 4);
  if (options.lambda.defined()) check("lambda", options.lambda, 3);
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const variable_list results = AttentionFunction::apply(
      q, k, v,
      optional(broadcast("bias", options.bias, {q.size(0), q.size(1), q.size(2), k.size(2)})),
      optional(broadcast("lambda", options.lambda, {q.size(0), q.size(1), q.size(2)})), rule,
      Mask{.causal = options.causal,
           .window_left = options.window_left,
           .window_right = options.window_right});
  TorchAttention attention;
  attention.output = results[0];
  auto next = results.begin() + 1;
  for_each_statistic([&](const Statistic&, at::Tensor& tensor) { tensor = *next++; }, attention);
  return attention;
}

}  // namespace isentrope
