#include "tools/check/run.h"

#include <limits>
#include <optional>

#include "tools/check/room.h"

namespace isentrope::check {

ForwardResult run_forward(const Data& data, const std::optional<AttentionOptions>& given,
                          const Passes& passes) {
  const AttentionOptions options = given.value_or(data.options());
  const Problem& p = data.problem;
  Room output(p.type, {p.batch, p.heads, p.queries, p.value_dim});
  ForwardResult result;
  AttentionOutput out{output.tensor(), {}};
  make_room(p, result, out.statistics);
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
                            const std::optional<AttentionOptions>& options, const Passes& passes) {
  const Problem& p = data.problem;
  const std::array<std::int64_t, 4> shape = {p.batch, p.heads, p.queries, p.value_dim};
  Room output(p.type, shape, forward.output);
  std::optional<Room> d_output;
  AttentionGradientInput in{.output = output.tensor(), .statistics = views_of(p, forward)};
  if (!gradient.d_output.empty())
    in.d_output = d_output.emplace(p.type, shape, floats_of(gradient.d_output)).tensor();
  const StatisticFields<std::vector<float>> d_statistics = floats_of(gradient.d_statistics);
  in.d_statistics = views_of(p, d_statistics);
  GradientRooms rooms(p);
  passes.backward(data.input(), options.value_or(data.options()), in, rooms.views());
  return rooms.result();
}

}  // namespace isentrope::check
