#include <algorithm>
#include <vector>

#include "bindings/jax/passes.h"
#include "src/call/validate.h"

namespace isentrope::jax {
namespace {

using Statistics64 = StatisticFields<View<double, 3>, View<std::int64_t, 3>>;

// Calls visit(view, at...) for each element of a view, in row-major order.
template <typename T, std::size_t Rank, typename Visit, typename... Index>
void for_each_element(const View<T, Rank>& view, const Visit& visit, Index... at) {
  if constexpr (sizeof...(at) == Rank) {
    visit(view(at...));
  } else {
    for (std::int64_t i = 0; view && i < view.extents[sizeof...(at)]; ++i)
      for_each_element(view, visit, at..., i);
  }
}

template <std::size_t Rank>
void copy(const std::vector<double>& from, const View<double, Rank>& to) {
  auto next = from.begin();
  for_each_element(to, [&](double& number) { number = *next++; });
}

template <std::size_t Rank>
std::vector<double> numbers_of(const View<double, Rank>& view) {
  std::vector<double> numbers;
  for_each_element(view, [&](double number) { numbers.push_back(number); });
  return numbers;
}

AttentionOptions validated(Call& part) {
  const AttentionOptions options = part.options();
  validate_input("attention", part.input(), options);
  validate_tables("attention", part.input(), options);
  return options;
}

reference::GradientInput upstream_in_float64(const Call& part) {
  reference::GradientInput upstream{.d_output = numbers_of(part.view<double, 4>("d_output"))};
  const Statistics64 statistics = part.statistics<Statistics64>("d_");
  for_each_statistic(
      [](const Statistic&, const auto& from, auto& to) {
        if constexpr (std::is_same_v<decltype(from.data), double*>) to = numbers_of(from);
      },
      statistics, upstream.d_statistics);
  return upstream;
}

void put(const reference::Gradients& from, const Call& part) {
  copy(from.dq, part.view<double, 4>("d_q"));
  copy(from.dk, part.view<double, 4>("d_k"));
  copy(from.dv, part.view<double, 4>("d_v"));
  copy(from.d_bias, part.view<double, 4>("d_bias"));
  copy(from.d_sinks, part.view<double, 1>("d_sinks"));
}

}  // namespace

void forward_in_float64(Call& part) {
  const reference::Result from =
      reference::attention_forward(part.input_in_float64(), validated(part));
  copy(from.output, part.view<double, 4>("output"));
  Statistics64 statistics = part.statistics<Statistics64>("");
  for_each_statistic(
      [&](const Statistic& statistic, const auto& to) {
        if constexpr (std::is_same_v<decltype(to.data), double*>) {
          std::size_t row = 0;
          for_each_element(to, [&](double& number) {
            number = statistic.of_row ? from.statistics[row].*statistic.of_row : from.lambda[row];
            ++row;
          });
        }
      },
      statistics);
  auto row = from.statistics.begin();
  for_each_element(part.view<std::int32_t, 3>("support"), [&](std::int32_t& count) {
    count = static_cast<std::int32_t>((row++)->support);
  });
}

void backward_in_float64(Call& part) {
  put(reference::attention_backward(part.input_in_float64(), validated(part),
                                    upstream_in_float64(part)),
      part);
}

void tangent_in_float64(Call& part) {
  const reference::Tangents from = reference::attention_tangent(
      part.input_in_float64(), validated(part), part.input_in_float64("t_"));
  copy(from.output, part.view<double, 4>("t_output"));
  const Statistics64 statistics = part.statistics<Statistics64>("t_");
  for_each_statistic(
      [](const Statistic&, const auto& numbers, const auto& to) {
        if constexpr (std::is_same_v<decltype(to.data), double*>) copy(numbers, to);
      },
      from.statistics, statistics);
}

void second_order_in_float64(Call& part) {
  put(reference::attention_second_order(part.input_in_float64(), validated(part),
                                        part.input_in_float64("t_"), upstream_in_float64(part)),
      part);
}

}  // namespace isentrope::jax
