// Operators for the most frequent calls: q, k and v, a rule and a causal mask. Unpacking each
// argument and result of an operator costs torch a tenth to a fifth of a microsecond, which for few
// rows exceeds the computation.

#include <array>
#include <bit>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/results.h"
#include "bindings/torch/threads.h"

namespace isentrope::stable {
namespace {

// Arguments of both operators. They reject float64 and whatever else the kernels do not support.
class PlainCall {
 public:
  explicit PlainCall(Arguments& from)
      : q(from), k(from), v(from), rule_(from), causal_(from.integer()) {}

  [[nodiscard]] AttentionInput input() const { return input_of(q, k, v); }

  // Valid until the next call on this thread. Options of the last rule are cached, because
  // consecutive calls use the same.
  [[nodiscard]] const AttentionOptions& options() const {
    thread_local std::string rule = ScaleRule().text();
    thread_local AttentionOptions options{.parallel_for = run_on_torch_threads};
    if (rule != rule_.view()) {
      // Copied first: if that throws, the cached options still match their text.
      std::string text(rule_.view());
      options.rule = ScaleRule::parse(text);
      rule = std::move(text);
    }
    options.mask.causal = causal_of(causal_);
    return options;
  }

  const TorchTensor q, k, v;

 private:
  const TorchText rule_;
  const std::int64_t causal_;
};

TorchTensor gradient_of(const TorchTensor& tensor, const ConstTensor& view) {
  return empty_laid_out_as(tensor, view.extents[2], view.extents[3], tensor.dtype());
}

std::vector<TorchTensor> attention_plain(const PlainCall& call, std::int64_t wanted) {
  const AttentionInput in = call.input();
  const AttentionOptions& options = call.options();
  const auto [batch, heads, queries, dim] = in.q.extents;
  const Rows rows{batch, heads, queries};
  std::vector<TorchTensor> results;
  results.reserve(static_cast<std::size_t>(1 + std::popcount(static_cast<std::uint64_t>(wanted))));
  results.push_back(allocate_for(in, options, [&, rows_of_q = queries] {
    return empty_laid_out_as(call.q, rows_of_q, in.v.extents[3], call.q.dtype());
  }));
  AttentionOutput views{output_view(results.front())};
  std::int64_t bit = 1;
  for_each_statistic(
      [&](const Statistic&, auto& view) {
        if (wanted & bit) {
          using Number = std::remove_pointer_t<decltype(view.data)>;
          const TorchTensor& tensor = results.emplace_back(rows, dtype_of_numbers<Number>());
          view = contiguous_view(static_cast<Number*>(tensor.write()), rows);
        }
        bit <<= 1;
      },
      views.statistics);
  attention_forward(in, options, views);
  return results;
}

std::array<TorchTensor, 3> attention_backward_plain(const PlainCall& call,
                                                    const TorchTensor& output,
                                                    const TorchTensor& lse,
                                                    const TorchTensor& d_output) {
  const AttentionInput in = call.input();
  std::array results{gradient_of(call.q, in.q), gradient_of(call.k, in.k),
                     gradient_of(call.v, in.v)};
  AttentionGradientInput gradient{.output = number_view("output", output),
                                  .d_output = number_view("d_output", d_output)};
  gradient.statistics.lse = view_of<float, 3>("lse", lse);
  isentrope::attention_backward(
      in, call.options(), gradient,
      {output_view(results[0]), output_view(results[1]), output_view(results[2])});
  return results;
}

}  // namespace

void define_plain(const Library& library) {
  const std::string plain = "Tensor q, Tensor k, Tensor v, str rule, int causal";
  library.on_cpu<attention_plain>("attention.plain(" + plain + ", int wanted) -> Tensor[]");
  library.on_cpu<attention_backward_plain>("attention_backward.plain(" + plain +
                                           ", Tensor output, Tensor lse, Tensor d_output)" +
                                           " -> (Tensor dq, Tensor dk, Tensor dv)");
}

}  // namespace isentrope::stable
