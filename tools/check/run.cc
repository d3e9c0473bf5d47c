#include "tools/check/run.h"

#include <optional>

#include "isentrope/key_statistics.h"

namespace isentrope::check {
namespace {

// Memory for a tensor of the problem's type, and its content as floats.
class Room {
 public:
  Room(DType type, const std::array<std::int64_t, 4>& shape)
      : type_(type),
        shape_(shape),
        floats_(size(type == DType::f32)),
        bits16_(size(type != DType::f32)) {}
  // Initialised with an earlier result of a kernel.
  Room(DType type, const std::array<std::int64_t, 4>& shape, const std::vector<float>& values)
      : Room(type, shape) {
    if (type == DType::f32) floats_ = values;
    for (std::size_t i = 0; i < bits16_.size(); ++i) {
      bits16_[i] = type == DType::bf16 ? from_float<BFloat16>(values[i]).bits
                                       : from_float<Float16>(values[i]).bits;
    }
  }

  [[nodiscard]] Tensor tensor() {
    const auto view = contiguous_view<float, 4>(floats_.data(), shape_);
    if (type_ == DType::f32) return view;
    return {bits16_.data(), type_, shape_, view.strides};
  }

  [[nodiscard]] std::vector<float> floats() const {
    if (type_ == DType::f32) return floats_;
    std::vector<float> result;
    for (const std::uint16_t half : bits16_) {
      result.push_back(type_ == DType::bf16 ? to_float(BFloat16{half}) : to_float(Float16{half}));
    }
    return result;
  }

 private:
  [[nodiscard]] std::size_t size(bool used) const {
    return used ? static_cast<std::size_t>(shape_[0] * shape_[1] * shape_[2] * shape_[3]) : 0;
  }

  DType type_;
  std::array<std::int64_t, 4> shape_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> bits16_;
};

std::vector<float> floats_of(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

ForwardResult run_forward(const Data& data, const ParallelFor& parallel_for) {
  AttentionOptions options = data.options();
  options.parallel_for = parallel_for;
  return run_forward(data, options);
}

BackwardResult run_backward(const Data& data, const ForwardResult& forward,
                            const reference::GradientInput& gradient,
                            const ParallelFor& parallel_for) {
  AttentionOptions options = data.options();
  options.parallel_for = parallel_for;
  return run_backward(data, forward, gradient, options);
}

ForwardResult run_forward(const Data& data, const AttentionOptions& options) {
  const Problem& p = data.problem;
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  Room output(p.type, {p.batch, p.heads, p.queries, p.value_dim});
  ForwardResult result;
  AttentionOutput out{output.tensor(), {}};
  for_each_statistic(
      [&]<typename T>(const Statistic&, std::vector<T>& values, View<T, 3>& view) {
        values.resize(rows);
        view = contiguous_view<T, 3>(values.data(), {p.batch, p.heads, p.queries});
      },
      result, out.statistics);
  attention_forward(data.input(), options, out);
  result.output = output.floats();
  if (p.sequences > 0) return result;  // received() takes one sequence at a time
  result.received.resize(static_cast<std::size_t>(p.batch * p.heads * p.keys));
  const std::array<std::int64_t, 3> of_rows = {p.batch, p.heads, p.queries};
  received(data.input(), options,
           {contiguous_view<const float, 3>(result.lse.data(), of_rows),
            contiguous_view<const float, 3>(data.row_weights.data(), of_rows)},
           contiguous_view<float, 3>(result.received.data(), {p.batch, p.heads, p.keys}));
  return result;
}

BackwardResult run_backward(const Data& data, const ForwardResult& forward,
                            const reference::GradientInput& gradient,
                            const AttentionOptions& options) {
  const Problem& p = data.problem;
  const std::vector<float> d_output = floats_of(gradient.d_output);
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  const std::array<std::int64_t, 4> output_shape = {p.batch, p.heads, p.queries, p.value_dim};
  Room output(p.type, output_shape, forward.output);
  std::optional<Room> upstream;
  AttentionGradientInput in{.output = output.tensor()};
  if (!d_output.empty()) in.d_output = upstream.emplace(p.type, output_shape, d_output).tensor();
  const auto place = [&]<typename T>(const Statistic&, const std::vector<T>& values,
                                     View<const T, 3>& view) {
    if (values.size() != rows) return;
    view = contiguous_view<const T, 3>(values.data(), {p.batch, p.heads, p.queries});
  };
  for_each_statistic(place, forward, in.statistics);
  StatisticFields<std::vector<float>, std::vector<std::int64_t>> d_statistics;
  for_each_statistic(
      [&]<typename T>(const Statistic&, const std::vector<double>& values, std::vector<T>& to) {
        to.assign(values.begin(), values.end());
      },
      gradient.d_statistics, d_statistics);
  for_each_statistic(place, d_statistics, in.d_statistics);
  Room dq(p.type, {p.batch, p.heads, p.queries, p.dim}),
      dk(p.type, {p.batch, p.kv_heads, p.keys, p.dim}),
      dv(p.type, {p.batch, p.kv_heads, p.keys, p.value_dim});
  BackwardResult result;
  AttentionGradients out{dq.tensor(), dk.tensor(), dv.tensor()};
  if (p.bias) {
    result.d_bias.resize(rows * static_cast<std::size_t>(p.keys));
    out.d_bias =
        contiguous_view<float, 4>(result.d_bias.data(), {p.batch, p.heads, p.queries, p.keys});
  }
  result.d_lambda.resize(rows);
  out.d_lambda = contiguous_view<float, 3>(result.d_lambda.data(), {p.batch, p.heads, p.queries});
  if (p.sink) {
    result.d_sinks.resize(static_cast<std::size_t>(p.heads));
    out.d_sinks = contiguous_view<float, 1>(result.d_sinks.data(), {p.heads});
  }
  attention_backward(data.input(), options, in, out);
  result.dq = dq.floats();
  result.dk = dk.floats();
  result.dv = dv.floats();
  return result;
}

}  // namespace isentrope::check
