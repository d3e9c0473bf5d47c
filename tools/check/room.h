#pragma once

#include <array>
#include <utility>
#include <vector>

#include "tools/check/run.h"

namespace isentrope::check {

inline std::vector<float> floats_of(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

inline StatisticFields<std::vector<float>> floats_of(
    const StatisticFields<std::vector<double>>& values) {
  StatisticFields<std::vector<float>> floats;
  for_each_statistic([](const Statistic&, const std::vector<double>& from,
                        std::vector<float>& to) { to = floats_of(from); },
                     values, floats);
  return floats;
}

// Makes room for the statistics of a problem's rows, with views of it.
template <typename Values, typename Views>
void make_room(const Problem& p, Values& values, Views& views) {
  for_each_statistic(
      [&]<typename T>(const Statistic&, std::vector<T>& numbers, View<T, 3>& view) {
        numbers.resize(static_cast<std::size_t>(p.batch * p.heads * p.queries));
        view = contiguous_view<T, 3>(numbers.data(), {p.batch, p.heads, p.queries});
      },
      values, views);
}

// Returns views of the statistics that were computed.
template <typename Fields>
ConstRowStatistics views_of(const Problem& p, const Fields& values) {
  ConstRowStatistics views;
  for_each_statistic(
      [&]<typename T, typename Count>(const Statistic&, const std::vector<T>& numbers,
                                      View<const Count, 3>& view) {
        if constexpr (std::is_same_v<T, Count>) {
          if (numbers.size() == static_cast<std::size_t>(p.batch * p.heads * p.queries))
            view = contiguous_view<const T, 3>(numbers.data(), {p.batch, p.heads, p.queries});
        }
      },
      values, views);
  return views;
}

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
    bits16_ = bits16_of(type, values);
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

// Memory for all gradients of a problem.
class GradientRooms {
 public:
  explicit GradientRooms(const Problem& p)
      : dq_(p.type, {p.batch, p.heads, p.queries, p.dim}),
        dk_(p.type, {p.batch, p.kv_heads, p.keys, p.dim}),
        dv_(p.type, {p.batch, p.kv_heads, p.keys, p.value_dim}),
        views_{dq_.tensor(), dk_.tensor(), dv_.tensor()} {
    const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
    result_.d_lambda.resize(rows);
    views_.d_lambda =
        contiguous_view<float, 3>(result_.d_lambda.data(), {p.batch, p.heads, p.queries});
    if (p.bias) {
      result_.d_bias.resize(rows * static_cast<std::size_t>(p.keys));
      views_.d_bias =
          contiguous_view<float, 4>(result_.d_bias.data(), {p.batch, p.heads, p.queries, p.keys});
    }
    if (p.sink) {
      result_.d_sinks.resize(static_cast<std::size_t>(p.heads));
      views_.d_sinks = contiguous_view<float, 1>(result_.d_sinks.data(), {p.heads});
    }
  }
  GradientRooms(const GradientRooms&) = delete;
  GradientRooms& operator=(const GradientRooms&) = delete;

  [[nodiscard]] const AttentionGradients& views() const { return views_; }
  [[nodiscard]] BackwardResult result() {
    result_.dq = dq_.floats();
    result_.dk = dk_.floats();
    result_.dv = dv_.floats();
    return std::move(result_);
  }

 private:
  Room dq_, dk_, dv_;
  BackwardResult result_;
  AttentionGradients views_;
};

}  // namespace isentrope::check
