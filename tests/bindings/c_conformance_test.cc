// Generated problems through the C interface: the same bits as from C++.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/calls_in_c.h"
#include "tools/check/derivatives.h"
#include "tools/check/generate.h"

namespace isentrope::check {
namespace {

template <typename T>
void expect_same_bits(const std::vector<T>& in_c, const std::vector<T>& in_cpp) {
  ASSERT_EQ(in_c.size(), in_cpp.size());
  if (in_c.empty()) return;
  EXPECT_EQ(std::memcmp(in_c.data(), in_cpp.data(), in_c.size() * sizeof(T)), 0);
}

template <typename Statistics>
void expect_same_statistics(const Statistics& in_c, const Statistics& in_cpp) {
  for_each_statistic(
      [](const Statistic&, const auto& one, const auto& other) { expect_same_bits(one, other); },
      in_c, in_cpp);
}

void expect_same_gradients(const BackwardResult& in_c, const BackwardResult& in_cpp) {
  for (const auto member :
       {&BackwardResult::dq, &BackwardResult::dk, &BackwardResult::dv, &BackwardResult::d_bias,
        &BackwardResult::d_lambda, &BackwardResult::d_sinks})
    expect_same_bits(in_c.*member, in_cpp.*member);
}

void expect_the_same_in_c(const Problem& problem) {
  const Data data(problem);
  const AttentionOptions options = data.options();
  const Passes in_c = in_c::passes();
  const ForwardResult forward = run_forward(data, options);
  const ForwardResult forward_in_c = run_forward(data, options, in_c);
  expect_same_bits(forward_in_c.output, forward.output);
  expect_same_bits(forward_in_c.received, forward.received);
  expect_same_bits(forward_in_c.received_of_all, forward.received_of_all);
  expect_same_bits(forward_in_c.chosen, forward.chosen);
  expect_same_statistics(forward_in_c, forward);
  if (!problem.backward) return;
  const reference::GradientInput upstream = random_gradient(problem);
  expect_same_gradients(run_backward(data, forward, upstream, options, in_c),
                        run_backward(data, forward, upstream, options));
  if (!problem.second_order) return;
  const Tensors tangents = random_tangents(problem);
  const TangentResult tangent = run_tangent(data, forward, tangents, options);
  const TangentResult tangent_in_c = run_tangent(data, forward, tangents, options, in_c);
  expect_same_bits(tangent_in_c.output, tangent.output);
  expect_same_statistics(tangent_in_c.statistics, tangent.statistics);
  expect_same_gradients(run_second_order(data, forward, tangents, tangent, upstream, options, in_c),
                        run_second_order(data, forward, tangents, tangent, upstream, options));
}

TEST(CConformance, GeneratedProblemsHaveTheBitsOfCpp) {
  for (std::int64_t i = 0; i < 400; ++i) {
    const Problem problem = generated_problem(11, i);
    SCOPED_TRACE(text_of(problem));
    expect_the_same_in_c(problem);
  }
}

}  // namespace
}  // namespace isentrope::check
