#include "tools/check/run.h"

#include <limits>
#include <optional>

#include "tools/check/room.h"

namespace isentrope::check {

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

ForwardResult run_forward(const Data& data, const AttentionOptions& options, const Passes& passes) {
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
  const std::array<std::int64_t, 3> of_rows = {p.batch, p.heads, p.queries},
                                    of_keys = {p.key_batches(), p.heads, p.keys};
  const auto room = [](std::vector<float>& values, const auto& extents) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    // Numbers that nobody writes are found.
    values.assign(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
    return contiguous_view(values.data(), extents);
  };
  out.received = room(result.received_of_all, of_keys);
  passes.forward(data.input(), options, out);
  result.output = output.floats();
  const auto lse = contiguous_view<const float, 3>(result.lse.data(), of_rows);
  passes.received(data.input(), options,
                  {lse, contiguous_view<const float, 3>(data.row_weights.data(), of_rows)},
                  room(result.received, of_keys));
  passes.weights_at(data.input(), options, lse, data.chosen(),
                    {room(result.chosen, data.chosen().extents)});
  return result;
}

BackwardResult run_backward(const Data& data, const ForwardResult& forward,
                            const reference::GradientInput& gradient,
                            const AttentionOptions& options, const Passes& passes) {
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
  GradientRooms rooms(p);
  passes.backward(data.input(), options, in, rooms.views());
  return rooms.result();
}

}  // namespace isentrope::check
