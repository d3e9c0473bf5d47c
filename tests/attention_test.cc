// The kernels against the float64 reference, on every instruction set this machine has.

#include "isentrope/attention.h"

#include <gtest/gtest.h>

#include "isentrope/target.h"
#include "tests/support/attention_problem.h"

namespace isentrope::testing {
namespace {

// Lengths around the edges of lanes, panels, strips and blocks, and primes.
std::vector<Problem> problems() {
  std::vector<Problem> list;
  const auto add = [&list](Problem problem) {
    problem.seed = static_cast<std::uint32_t>(list.size() + 1);
    list.push_back(problem);
  };
  for (const std::int64_t n : {1, 2, 3, 7, 8, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 127, 128, 129,
                               255, 256, 257, 333, 521}) {
    for (const Causal causal : {Causal::none, Causal::bottom_right}) {
      add({1, 2, n, n, 16, 16, causal, ScaleRule::entropy_invariant()});
    }
  }
  for (const std::int64_t d : {1, 2, 3, 5, 16, 31, 32, 33, 64, 80, 128, 129}) {
    add({1, 1, 37, 65, d, d, Causal::top_left, ScaleRule::standard()});
    add({2, 1, 37, 65, d, 130 - d, Causal::none, ScaleRule::log_length()});
  }
  for (const auto& [queries, keys] : {std::pair{1, 1000}, {5, 300}, {300, 5}, {1, 1}, {211, 600}, {600, 211}}) {
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      add({1, 1, queries, keys, 24, 40, causal, ScaleRule::entropy_invariant(64)});
    }
  }
  for (const double magnitude : {1e-6, 1e-3, 10.0, 1e3, 1e6}) {
    add({1, 2, 65, 129, 64, 64, Causal::none, ScaleRule::standard(), magnitude});
    add({1, 2, 65, 65, 64, 64, Causal::top_left, ScaleRule::entropy_invariant(), magnitude});
  }
  add({1, 1, 9, 70, 8, 8, Causal::none, ScaleRule::constant(0)});
  add({1, 1, 1100, 1100, 8, 8, Causal::bottom_right, ScaleRule::standard()});
  return list;
}

class OnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    use_target(GetParam());
    ASSERT_EQ(active_target(), GetParam());
  }
  void TearDown() override { use_target(supported_targets().front()); }
};
INSTANTIATE_TEST_SUITE_P(Attention, OnTarget, ::testing::ValuesIn(supported_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(OnTarget, ForwardIsWithinBudget) {
  double worst = 0;
  for (const Problem& problem : problems()) {
    const Data data(problem);
    const Ratio ratio = forward_error_over_budget(data, run_forward(data));
    EXPECT_LE(ratio.worst, 1) << problem.text() << ": " << ratio.where;
    worst = std::max(worst, ratio.worst);
  }
  std::printf("largest error over budget: %.3f\n", worst);
}

TEST_P(OnTarget, BackwardIsWithinBudget) {
  double worst = 0;
  for (const Problem& problem : problems()) {
    const Data data(problem);
    const reference::GradientInput gradient = random_gradient(problem);
    const Ratio ratio =
        backward_error_over_budget(data, gradient, run_backward(data, run_forward(data), gradient));
    EXPECT_LE(ratio.worst, 1) << problem.text() << ": " << ratio.where;
    worst = std::max(worst, ratio.worst);
  }
  std::printf("largest error over budget: %.3f\n", worst);
}

}  // namespace
}  // namespace isentrope::testing
