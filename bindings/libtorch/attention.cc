#include "isentrope/libtorch/attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>
#include <type_traits>

#include "bindings/torch/threads.h"
#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/error.h"

namespace isentrope {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

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

OptionalTensor optional(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
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

// The tensors of a call, in the order in which they are saved; absent ones are undefined. After the
// output follow the statistics, in the order of the list.
enum Saved : std::size_t { kQ, kK, kV, kBias, kLambda, kOutput, kStatistics };

AttentionInput input_of(const variable_list& saved) {
  return {view_of<const float, 4>(saved[kQ]), view_of<const float, 4>(saved[kK]),
          view_of<const float, 4>(saved[kV])};
}

AttentionOptions options_of(const variable_list& saved, const ScaleRule& rule, const Mask& mask) {
  return {.rule = rule,
          .mask = mask,
          .bias = view_of<const float, 4>(saved[kBias]),
          .lambda = view_of<const float, 3>(saved[kLambda]),
          .parallel_for = run_on_torch_threads};
}

// Returns views of one tensor for each statistic, in the order of the list.
ConstRowStatistics statistics_of(const at::Tensor* tensors) {
  ConstRowStatistics views;
  for_each_statistic(
      [&]<typename T>(const Statistic&, View<T, 3>& view) { view = view_of<T, 3>(*tensors++); },
      views);
  return views;
}

// Rule and mask are saved as values, because they are no tensors.
void save(AutogradContext* context, const variable_list& tensors, const ScaleRule& rule,
          const Mask& mask) {
  context->save_for_backward(tensors);
  context->set_materialize_grads(false);
  context->saved_data["rule"] = rule.text();
  context->saved_data["causal"] = static_cast<std::int64_t>(mask.causal);
  context->saved_data["window_left"] = mask.window_left;
  context->saved_data["window_right"] = mask.window_right;
}

ScaleRule saved_rule(AutogradContext* context) {
  return ScaleRule::parse(context->saved_data["rule"].toStringRef());
}

Mask saved_mask(AutogradContext* context) {
  const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
  return {.causal = static_cast<Causal>(number("causal")),
          .window_left = number("window_left"),
          .window_right = number("window_right")};
}

// Whether a saved argument gets a gradient: bias and lambda only if they require one.
bool has_gradient(const variable_list& saved, std::size_t at) {
  return at < kBias || (saved[at].defined() && saved[at].requires_grad());
}

// One tensor for each argument, undefined for those without a gradient.
variable_list empty_gradients(const variable_list& saved) {
  variable_list gradients(kOutput);
  for (std::size_t at = 0; at < kOutput; ++at) {
    if (!has_gradient(saved, at)) continue;
    gradients[at] = at < kBias ? empty_laid_out_as(saved[at], saved[at].size(2), saved[at].size(3))
                               : at::empty(saved[at].sizes(), saved[at].options());
  }
  return gradients;
}

AttentionGradients views_of(const variable_list& gradients) {
  return {view_of<float, 4>(gradients[kQ]), view_of<float, 4>(gradients[kK]),
          view_of<float, 4>(gradients[kV]), view_of<float, 4>(gradients[kBias]),
          view_of<float, 3>(gradients[kLambda])};
}

// Autograd functions return defined tensors only.
variable_list defined_among(const variable_list& tensors) {
  variable_list defined;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) defined.push_back(tensor);
  return defined;
}

// Returns one tensor for each argument from those of arguments with a gradient.
variable_list of_arguments(const variable_list& saved, const variable_list& defined) {
  variable_list tensors(kOutput);
  auto next = defined.begin();
  for (std::size_t at = 0; at < kOutput; ++at)
    if (has_gradient(saved, at)) tensors[at] = *next++;
  return tensors;
}

// The backward pass, whose own derivatives are the tangent pass and the second-order pass.
class BackwardFunction : public torch::autograd::Function<BackwardFunction> {
 public:
  // upstream: gradients of output and statistics. given: those that are defined, for autograd.
  // results: output and statistics, as constants.
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const OptionalTensor& bias,
                               const OptionalTensor& lambda, at::TensorList /*given*/,
                               const variable_list& upstream, const variable_list& results,
                               const ScaleRule& rule, const Mask& mask) {
    variable_list saved{q, k, v, bias.value_or(at::Tensor()), lambda.value_or(at::Tensor())};
    saved.insert(saved.end(), results.begin(), results.end());
    const variable_list gradients = empty_gradients(saved);
    attention_backward(input_of(saved), options_of(saved, rule, mask),
                       {.output = view_of<const float, 4>(saved[kOutput]),
                        .statistics = statistics_of(&saved[kStatistics]),
                        .d_output = view_of<const float, 4>(upstream[0]),
                        .d_statistics = statistics_of(&upstream[1])},
                       views_of(gradients));
    saved.insert(saved.end(), upstream.begin(), upstream.end());
    save(context, saved, rule, mask);
    return defined_among(gradients);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& upstream_of_gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "[torch_attention] derivatives must be of first or second order; got create_graph = true "
          "in a double backward");
    }
    const variable_list saved = context->get_saved_variables();
    const variable_list tangents = of_arguments(saved, upstream_of_gradients);
    const std::size_t results = (saved.size() - kOutput) / 2;
    const at::Tensor* upstream = &saved[kOutput + results];
    const AttentionInput input = input_of(saved);
    const AttentionOptions options = options_of(saved, saved_rule(context), saved_mask(context));
    AttentionTangentInput tangent{.output = view_of<const float, 4>(saved[kOutput]),
                                  .statistics = statistics_of(&saved[kStatistics])};
    tangent.tangents = {.q = view_of<const float, 4>(tangents[kQ]),
                        .k = view_of<const float, 4>(tangents[kK]),
                        .v = view_of<const float, 4>(tangents[kV]),
                        .bias = view_of<const float, 4>(tangents[kBias]),
                        .lambda = view_of<const float, 3>(tangents[kLambda])};
    variable_list of_results{at::empty_like(saved[kOutput])};
    AttentionTangentOutput outputs{.output = view_of<float, 4>(of_results[0])};
    for_each_statistic(
        [&]<typename T>(const Statistic& statistic, View<T, 3>& view) {
          of_results.emplace_back();
          if (!statistic.differentiable()) return;
          of_results.back() = at::empty_like(saved[kOutput + of_results.size() - 1]);
          view = view_of<T, 3>(of_results.back());
        },
        outputs.statistics);
    attention_tangent(input, options, tangent, outputs);
    const variable_list gradients = empty_gradients(saved);
    attention_second_order(input, options,
                           {.output = tangent.output,
                            .statistics = tangent.statistics,
                            .tangents = tangent.tangents,
                            .output_tangent = view_of<const float, 4>(of_results[0]),
                            .statistic_tangents = as_const(outputs.statistics),
                            .d_output = view_of<const float, 4>(upstream[0]),
                            .d_statistics = statistics_of(upstream + 1)},
                           views_of(gradients));
    variable_list found = gradients;
    for (std::size_t i = 0; i < results; ++i)
      if (upstream[i].defined()) found.push_back(of_results[i]);
    found.resize(found.size() + 4);  // other arguments have no gradients
    return found;
  }
};

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const OptionalTensor& bias,
                               const OptionalTensor& lambda, const ScaleRule& rule,
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
    attention_forward(input_of(saved), options_of(saved, rule, mask),
                      {view_of<float, 4>(output), views});
    saved.insert(saved.end(), results.begin(), results.end());
    save(context, saved, rule, mask);
    context->mark_non_differentiable(fixed);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const variable_list saved = context->get_saved_variables();
    variable_list results;
    for (std::size_t i = kOutput; i < saved.size(); ++i) results.push_back(saved[i].detach());
    const variable_list given = defined_among(upstream);
    const variable_list found = BackwardFunction::apply(
        saved[kQ], saved[kK], saved[kV], optional(saved[kBias]), optional(saved[kLambda]),
        at::TensorList(given), upstream, results, saved_rule(context), saved_mask(context));
    variable_list gradients = of_arguments(saved, found);
    gradients.resize(gradients.size() + 2);  // rule and mask have no gradients
    return gradients;
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
