#include "isentrope/libtorch/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <type_traits>

#include "isentrope/attention.h"
#include "isentrope/error.h"

namespace isentrope {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A view of the tensor's memory. The caller keeps the tensor alive.
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

void check(const char* name, const at::Tensor& tensor) {
  const auto fail = [&](const std::string& required, const std::string& got) {
    throw Error("[torch_attention] " + std::string(name) + " must " + required + "; got " + got);
  };
  if (!tensor.defined()) fail("be a tensor", "an undefined one");
  if (tensor.dim() != 4) fail("have 4 dimensions", std::to_string(tensor.dim()));
  if (!tensor.device().is_cpu()) fail("lie on the CPU", tensor.device().str());
  if (tensor.scalar_type() != at::kFloat) fail("be float32", c10::toString(tensor.scalar_type()));
}

void run_on_torch_threads(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) body(task);
  });
}

// [batch, heads, rows, columns], laid out as `like` is: where heads lie inside rows, as a
// projection leaves them, the result can be viewed as [batch, rows, heads * columns] without a
// copy.
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

// Views of one tensor for each statistic, in the order of the list.
ConstRowStatistics statistics_of(const at::Tensor* tensors) {
  ConstRowStatistics views;
  for_each_statistic(
      [&]<typename T>(const Statistic&, View<T, 3>& view) { view = view_of<T, 3>(*tensors++); },
      views);
  return views;
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOptions& options) {
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
          if (!statistic.differentiable) fixed.push_back(results.back());
        },
        views);
    attention_forward(input_of(q, k, v), options, {view_of<float, 4>(output), views});
    variable_list saved{q, k, v};
    saved.insert(saved.end(), results.begin(), results.end());
    context->save_for_backward(saved);
    context->set_materialize_grads(false);
    context->mark_non_differentiable(fixed);
    // Rule and mask are no tensors: they travel as what they are.
    context->saved_data["rule"] = options.rule.text();
    context->saved_data["causal"] = static_cast<std::int64_t>(options.mask.causal);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    if (at::GradMode::is_enabled()) {
      throw Error("[torch_attention] double backward is not implemented; got create_graph = true");
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const AttentionOptions options{
        .rule = ScaleRule::parse(context->saved_data["rule"].toStringRef()),
        .mask = {.causal = static_cast<Causal>(context->saved_data["causal"].toInt())},
        .parallel_for = run_on_torch_threads};
    const at::Tensor dq = empty_laid_out_as(q, q.size(2), q.size(3));
    const at::Tensor dk = empty_laid_out_as(k, k.size(2), k.size(3));
    const at::Tensor dv = empty_laid_out_as(v, v.size(2), v.size(3));
    attention_backward(input_of(q, k, v), options,
                       {.output = view_of<const float, 4>(saved[3]),
                        .statistics = statistics_of(saved.data() + 4),
                        .d_output = view_of<const float, 4>(upstream[0]),
                        .d_statistics = statistics_of(upstream.data() + 1)},
                       {view_of<float, 4>(dq), view_of<float, 4>(dk), view_of<float, 4>(dv)});
    return {dq, dk, dv, {}};
  }
};

}  // namespace

TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ScaleRule& rule, Causal causal) {
  check("q", q);
  check("k", k);
  check("v", v);
  const variable_list results = AttentionFunction::apply(
      q, k, v,
      AttentionOptions{
          .rule = rule, .mask = {.causal = causal}, .parallel_for = run_on_torch_threads});
  TorchAttention attention;
  attention.output = results[0];
  auto next = results.begin() + 1;
  for_each_statistic([&](const Statistic&, at::Tensor& tensor) { tensor = *next++; }, attention);
  return attention;
}

}  // namespace isentrope
