#include "tools/check/measure.h"

#include <algorithm>
#include <chrono>

#include "src/call/sequences.h"

namespace isentrope::check {

Work work_of(const Data& data) {
  const Problem& p = data.problem;
  const Mask mask = data.options().mask;
  const AttentionInput in = data.input();
  double pairs = 0;
  for (std::int64_t s = 0; s < in.sequences(); ++s) {
    const std::int64_t queries = queries_of(in, s).size(), keys = keys_of(in, s);
    for (std::int64_t query = 0; query < queries; ++query)
      pairs += static_cast<double>(row_view(mask, s, query, queries, keys).keys.size());
  }
  pairs *= static_cast<double>(p.heads);
  const double products = p.backward ? static_cast<double>(4 * p.dim + 3 * p.value_dim)
                                     : static_cast<double>(p.dim + p.value_dim);
  const double from_inputs =
      p.backward ? static_cast<double>(2 * p.dim + p.value_dim) : static_cast<double>(p.dim);
  return {.flops = 2 * pairs * products,
          .from_inputs = 2 * pairs * from_inputs,
          .scores = p.backward ? 2 * pairs : pairs};
}

PreparedCall::PreparedCall(const Problem& p, const ParallelFor& parallel_for)
    : data_(p), options_(data_.options()), input_(data_.input()) {
  options_.parallel_for = parallel_for;
  const std::array<std::int64_t, 4> result = {p.batch, p.heads, p.queries, p.value_dim};
  output_.output = room(result);
  for_each_statistic(
      [&]<typename T>(const Statistic&, std::vector<T>& values, View<T, 3>& view) {
        values.resize(static_cast<std::size_t>(p.batch * p.heads * p.queries));
        view = contiguous_view<T, 3>(values.data(), {p.batch, p.heads, p.queries});
      },
      statistics_, output_.statistics);
  if (!p.backward) return;
  const Tensor d_output = room(result);
  for (std::int64_t i = 0; i < result[0] * result[1] * result[2] * result[3]; ++i) {
    if (p.type == DType::f32) {
      static_cast<float*>(d_output.data)[i] = 1;
    } else {
      const auto unit =
          p.type == DType::bf16 ? from_float<BFloat16>(1).bits : from_float<Float16>(1).bits;
      static_cast<std::uint16_t*>(d_output.data)[i] = unit;
    }
  }
  upstream_ = {.output = output_.output,
               .statistics = {.lse = output_.statistics.lse},
               .d_output = d_output};
  gradients_.dq = room({p.batch, p.heads, p.queries, p.dim});
  gradients_.dk = room({p.batch, p.kv_heads, p.keys, p.dim});
  gradients_.dv = room({p.batch, p.kv_heads, p.keys, p.value_dim});
}

// Allocates a result in the problem's type; halves use the first half of the floats.
Tensor PreparedCall::room(const std::array<std::int64_t, 4>& shape) {
  floats_.emplace_back(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  const auto view = contiguous_view<float, 4>(floats_.back().data(), shape);
  return {view.data, data_.problem.type, shape, view.strides};
}

double PreparedCall::run() {
  const auto start = std::chrono::steady_clock::now();
  attention_forward(input_, options_, output_);
  if (data_.problem.backward) attention_backward(input_, options_, upstream_, gradients_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace isentrope::check
