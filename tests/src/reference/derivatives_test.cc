// The reference's derivatives against differences of its forward and backward passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "isentrope/reference.h"
#include "tools/check/run.h"

namespace isentrope::check {
namespace {

constexpr const char* kLines[] = {
    "shape=2x4:2x5x9x3:4 mask=causal:bottom_right rule=entropy_invariant(base=8)",
    "shape=1x2x7x7x4 mask=causal:top_left,window=3:0 sink=1 dropout=0.3 dropout_seed=5",
    "shape=1x2x5x9x3 bias=1 admitted=1 cap=2 sink=1 scale=3 rule=log_scaling(n_floor=4,alpha=0.5)",
    "shape=1x2x6x8x3 lambda=1 cap=0.7 mask=documents=2 rule=xai_temperature(len=8)",
    "shape=2x2x4x9x3 mask=left_padding,right_padding,dilation=2 dropout=0.5"};

// The members of a call's tensors.
constexpr std::array kMembers = {&Tensors::q,    &Tensors::k,     &Tensors::v,
                                 &Tensors::bias, &Tensors::sinks, &Tensors::lambda};

Tensors tensors_of(const Data& data) {
  const Problem& p = data.problem;
  const AttentionOptions options = data.options();
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  Tensors at{{data.q.begin(), data.q.end()},
             {data.k.begin(), data.k.end()},
             {data.v.begin(), data.v.end()},
             {},
             {},
             {}};
  if (p.bias)
    at.bias.assign(
        static_cast<const float*>(options.bias.data),
        static_cast<const float*>(options.bias.data) + rows * static_cast<std::size_t>(p.keys));
  if (p.sink) at.sinks.assign(options.sinks.data, options.sinks.data + p.heads);
  if (p.lambda_table) at.lambda.assign(options.lambda.data, options.lambda.data + rows);
  return at;
}

Tensors random_direction(const Tensors& at) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  Tensors direction = at;
  for (const auto member : kMembers) {
    for (double& value : direction.*member) value = std::isinf(value) ? 0 : normal(random);
  }
  return direction;
}

Tensors moved(const Tensors& at, double step, const Tensors& direction) {
  Tensors result = at;
  for (const auto member : kMembers) {
    for (std::size_t i = 0; i < (result.*member).size(); ++i)
      (result.*member)[i] += step * (direction.*member)[i];
  }
  return result;
}

constexpr double kStep = 1e-5;

void expect_close(const char* name, const std::vector<double>& got,
                  const std::vector<double>& after, const std::vector<double>& before) {
  ASSERT_EQ(got.size(), after.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = (after[i] - before[i]) / (2 * kStep);
    EXPECT_NEAR(got[i], difference, 1e-6 * (1 + std::abs(difference))) << name << "[" << i << "]";
  }
}

class ReferenceDerivatives : public ::testing::TestWithParam<const char*> {
 protected:
  // Calls visit(point) at both sides of the problem's point.
  template <typename Visit>
  auto both(const Visit& visit) const {
    const Tensors after = moved(at_, kStep, direction_), before = moved(at_, -kStep, direction_);
    return std::pair(visit(after.input(data_.problem)), visit(before.input(data_.problem)));
  }

  const Data data_{parse_problem(GetParam())};
  const Tensors at_ = tensors_of(data_), direction_ = random_direction(at_);
  const AttentionOptions options_ = data_.options();
};
INSTANTIATE_TEST_SUITE_P(Lines, ReferenceDerivatives, ::testing::ValuesIn(kLines));

TEST_P(ReferenceDerivatives, TangentsAreDifferencesOfTheForwardPass) {
  const Problem& p = data_.problem;
  const auto [after, before] =
      both([&](const reference::Input& in) { return reference::attention_forward(in, options_); });
  const reference::Tangents got =
      reference::attention_tangent(at_.input(p), options_, direction_.input(p));
  expect_close("output", got.output, after.output, before.output);
  for_each_statistic(
      [&](const Statistic& statistic, const std::vector<double>& tangents) {
        EXPECT_EQ(tangents.empty(), !statistic.differentiable()) << statistic.name;
        for (std::size_t row = 0; row < tangents.size(); ++row) {
          const double difference =
              (after.statistics[row].*statistic.of_row - before.statistics[row].*statistic.of_row) /
              (2 * kStep);
          if (after.statistics[row].support == 0) {
            EXPECT_EQ(tangents[row], 0) << statistic.name;
          } else {
            EXPECT_NEAR(tangents[row], difference, 1e-6 * (1 + std::abs(difference)))
                << statistic.name << "[" << row << "]";
          }
        }
      },
      got.statistics);
}

TEST_P(ReferenceDerivatives, SecondOrderIsTheDifferenceOfTheBackwardPass) {
  const Problem& p = data_.problem;
  const reference::GradientInput upstream = random_gradient(p);
  const auto [after, before] = both([&](const reference::Input& in) {
    return reference::attention_backward(in, options_, upstream);
  });
  const reference::Gradients got =
      reference::attention_second_order(at_.input(p), options_, direction_.input(p), upstream);
  expect_close("dq", got.dq, after.dq, before.dq);
  expect_close("dk", got.dk, after.dk, before.dk);
  expect_close("dv", got.dv, after.dv, before.dv);
  expect_close("d_bias", got.d_bias, after.d_bias, before.d_bias);
  expect_close("d_lambda", got.d_lambda, after.d_lambda, before.d_lambda);
  expect_close("d_sinks", got.d_sinks, after.d_sinks, before.d_sinks);
}

// Forward mode and reverse mode agree: <upstream, tangents> = <gradients, direction>.
TEST_P(ReferenceDerivatives, TheBackwardPassIsTheTransposeOfTheTangentPass) {
  const Problem& p = data_.problem;
  const reference::GradientInput upstream = random_gradient(p);
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += a[i] * b[i];
    return sum;
  };
  const reference::Tangents tangents =
      reference::attention_tangent(at_.input(p), options_, direction_.input(p));
  const reference::Gradients gradients =
      reference::attention_backward(at_.input(p), options_, upstream);
  double forward = dot(upstream.d_output, tangents.output);
  for_each_statistic([&](const Statistic&, const std::vector<double>& d,
                         const std::vector<double>& tangent) { forward += dot(d, tangent); },
                     upstream.d_statistics, tangents.statistics);
  const double reverse = dot(gradients.dq, direction_.q) + dot(gradients.dk, direction_.k) +
                         dot(gradients.dv, direction_.v) + dot(gradients.d_bias, direction_.bias) +
                         dot(gradients.d_sinks, direction_.sinks) +
                         dot(gradients.d_lambda, direction_.lambda);
  EXPECT_NEAR(forward, reverse, 1e-11 * (1 + std::abs(forward)));
}

}  // namespace
}  // namespace isentrope::check
