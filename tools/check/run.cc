#include "tools/check/run.h"

#include <limits>
#include <optional>
#include <random>

#include "src/shape.h"
#include "tools/check/room.h"

namespace isentrope::check {
namespace {

// The tangents as the kernels read them, with their memory.
class TangentRooms {
 public:
  TangentRooms(const Problem& p, const Tensors& tangents)
      : bias_(floats_of(tangents.bias)),
        lambda_(floats_of(tangents.lambda)),
        sinks_(floats_of(tangents.sinks)) {
    const reference::Input in = tangents.input(p);
    const auto place = [&](std::optional<Room>& room, DType type, const View<const double, 4>& view,
                           const std::vector<double>& values) {
      return view ? ConstTensor(room.emplace(type, view.extents, floats_of(values)).tensor())
                  : ConstTensor{};
    };
    views_.q = place(q_, p.type, in.q, tangents.q);
    views_.k = place(k_, type_of_keys(p), in.k, tangents.k);
    views_.v = place(v_, type_of_keys(p), in.v, tangents.v);
    if (in.bias) views_.bias = contiguous_view<const float, 4>(bias_.data(), in.bias.extents);
    if (in.lambda)
      views_.lambda = contiguous_view<const float, 3>(lambda_.data(), in.lambda.extents);
    if (in.sinks) views_.sinks = contiguous_view<const float, 1>(sinks_.data(), in.sinks.extents);
  }
  TangentRooms(const TangentRooms&) = delete;
  TangentRooms& operator=(const TangentRooms&) = delete;

  [[nodiscard]] const AttentionTangents& views() const { return views_; }

 private:
  std::optional<Room> q_, k_, v_;
  std::vector<float> bias_, lambda_, sinks_;
  AttentionTangents views_;
};

}  // namespace

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
  const Shape<4> shape = {p.batch, p.heads, p.queries, p.value_dim};
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

reference::Input Tensors::input(const Problem& p) const {
  const auto view = [](const std::vector<double>& values, const auto& extents) {
    constexpr std::size_t kRank = std::tuple_size_v<std::remove_cvref_t<decltype(extents)>>;
    return values.empty() ? View<const double, kRank>{}
                          : contiguous_view<const double, kRank>(values.data(), extents);
  };
  return {view(q, Shape<4>{p.batch, p.heads, p.queries, p.dim}),
          view(k, Shape<4>{p.batch, p.kv_heads, p.keys, p.dim}),
          view(v, Shape<4>{p.batch, p.kv_heads, p.keys, p.value_dim}),
          view(bias, Shape<4>{p.batch, p.heads, p.queries, p.keys}),
          view(sinks, Shape<1>{p.heads}),
          view(lambda, Shape<3>{p.batch, p.heads, p.queries})};
}

Tensors random_tangents(const Problem& p) {
  std::mt19937 random(p.seed + 2000);
  std::normal_distribution<double> normal;
  const std::int64_t rows = p.batch * p.heads * p.queries, key_rows = p.batch * p.kv_heads * p.keys;
  const auto draw = [&](bool exists, std::int64_t count, DType type) {
    std::vector<double> values;
    if (!exists || random() % 6 == 0) return values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<double>(rounded_to(type, static_cast<float>(normal(random)))));
    return values;
  };
  return {.q = draw(true, rows * p.dim, p.type),
          .k = draw(true, key_rows * p.dim, type_of_keys(p)),
          .v = draw(true, key_rows * p.value_dim, type_of_keys(p)),
          .bias = draw(p.bias, rows * p.keys, DType::f32),
          .sinks = draw(p.sink, p.heads, DType::f32),
          .lambda = draw(p.lambda_table || p.seed % 4 == 0, rows, DType::f32)};
}

TangentResult run_tangent(const Data& data, const ForwardResult& forward, const Tensors& tangents,
                          const std::optional<AttentionOptions>& options, const Passes& passes) {
  const Problem& p = data.problem;
  const Shape<4> shape = {p.batch, p.heads, p.queries, p.value_dim};
  Room output(p.type, shape, forward.output), result_output(p.type, shape);
  const TangentRooms rooms(p, tangents);
  TangentResult result;
  AttentionTangentOutput out{.output = result_output.tensor()};
  for_each_statistic(
      [&]<typename T>(const Statistic& statistic, std::vector<float>& values, View<T, 3>& view) {
        if constexpr (std::is_same_v<T, float>) {
          if (!statistic.differentiable()) return;
          values.resize(static_cast<std::size_t>(p.batch * p.heads * p.queries));
          view = contiguous_view<float, 3>(values.data(), {p.batch, p.heads, p.queries});
        }
      },
      result.statistics, out.statistics);
  passes.tangent(
      data.input(), options.value_or(data.options()),
      {.output = output.tensor(), .statistics = views_of(p, forward), .tangents = rooms.views()},
      out);
  result.output = result_output.floats();
  return result;
}

BackwardResult run_second_order(const Data& data, const ForwardResult& forward,
                                const Tensors& tangents, const TangentResult& tangent_result,
                                const reference::GradientInput& gradient,
                                const std::optional<AttentionOptions>& options,
                                const Passes& passes) {
  const Problem& p = data.problem;
  const Shape<4> shape = {p.batch, p.heads, p.queries, p.value_dim};
  Room output(p.type, shape, forward.output), output_tangent(p.type, shape, tangent_result.output);
  std::optional<Room> d_output;
  const TangentRooms rooms(p, tangents);
  AttentionSecondOrderInput in{.output = output.tensor(),
                               .statistics = views_of(p, forward),
                               .tangents = rooms.views(),
                               .output_tangent = output_tangent.tensor(),
                               .statistic_tangents = views_of(p, tangent_result.statistics)};
  if (!gradient.d_output.empty())
    in.d_output = d_output.emplace(p.type, shape, floats_of(gradient.d_output)).tensor();
  const StatisticFields<std::vector<float>> d_statistics = floats_of(gradient.d_statistics);
  in.d_statistics = views_of(p, d_statistics);
  GradientRooms results(p);
  passes.second_order(data.input(), options.value_or(data.options()), in, results.views());
  return results.result();
}

}  // namespace isentrope::check
