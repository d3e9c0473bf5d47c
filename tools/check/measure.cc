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
    : data_(p), options_(data_.options(parallel_for)), input_(data_.input()) {
  const auto room = [&](const std::array<std::int64_t, 4>& shape) {
    return rooms_.emplace_back(p.type, shape).tensor();
  };
  const std::array<std::int64_t, 4> result = {p.batch, p.heads, p.queries, p.value_dim};
  output_.output = room(result);
  make_room(p, statistics_, output_.statistics);
  if (!p.backward) return;
  const std::vector<float> ones(
      static_cast<std::size_t>(p.batch * p.heads * p.queries * p.value_dim), 1);
  upstream_ = {.output = output_.output,
               .statistics = {.lse = output_.statistics.lse},
               .d_output = rooms_.emplace_back(p.type, result, ones).tensor()};
  gradients_.dq = room({p.batch, p.heads, p.queries, p.dim});
  gradients_.dk = room({p.batch, p.kv_heads, p.keys, p.dim});
  gradients_.dv = room({p.batch, p.kv_heads, p.keys, p.value_dim});
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
