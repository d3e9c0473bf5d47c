// Whether other passes, behind another door or on other arrays, have the bits of the library's.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tools/check/generate.h"
#include "tools/check/run.h"

namespace isentrope::check {

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want) {
  EXPECT_TRUE(same_bits(got, want)) << got.size() << " numbers, and " << want.size();
}

template <typename Statistics>
void expect_same_statistics(const Statistics& got, const Statistics& want) {
  for_each_statistic(
      [](const Statistic&, const auto& one, const auto& other) { expect_same_bits(one, other); },
      got, want);
}

inline void expect_same_gradients(const BackwardResult& got, const BackwardResult& want) {
  for (const auto member :
       {&BackwardResult::dq, &BackwardResult::dk, &BackwardResult::dv, &BackwardResult::d_bias,
        &BackwardResult::d_lambda, &BackwardResult::d_sinks})
    expect_same_bits(got.*member, want.*member);
}

// Expects the bits of the library from all passes that the problem asks for.
inline void expect_same_bits(const Problem& problem, const Passes& passes,
                             const ParallelFor& parallel_for = run_serially) {
  const Data data(problem);
  AttentionOptions options = data.options();
  options.parallel_for = parallel_for;
  const ForwardResult forward = run_forward(data);
  const ForwardResult got = run_forward(data, options, passes);
  expect_same_bits(got.output, forward.output);
  expect_same_bits(got.received, forward.received);
  expect_same_bits(got.received_of_all, forward.received_of_all);
  expect_same_bits(got.chosen, forward.chosen);
  expect_same_statistics(got, forward);
  if (!problem.backward) return;
  const reference::GradientInput upstream = random_gradient(problem);
  expect_same_gradients(run_backward(data, forward, upstream, options, passes),
                        run_backward(data, forward, upstream));
  if (!problem.second_order) return;
  const Tensors tangents = random_tangents(problem);
  const TangentResult tangent = run_tangent(data, forward, tangents);
  const TangentResult got_tangent = run_tangent(data, forward, tangents, options, passes);
  expect_same_bits(got_tangent.output, tangent.output);
  expect_same_statistics(got_tangent.statistics, tangent.statistics);
  expect_same_gradients(
      run_second_order(data, forward, tangents, tangent, upstream, options, passes),
      run_second_order(data, forward, tangents, tangent, upstream));
}

}  // namespace isentrope::check
