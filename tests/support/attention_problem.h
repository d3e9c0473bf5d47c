// A generated attention problem, run through the kernels and through the float64 reference, and the error
// budget that separates right from wrong (docs/numerics.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/reference.h"

namespace isentrope::testing {

struct Problem {
  std::int64_t batch = 1, heads = 1, queries = 1, keys = 1, dim = 1, value_dim = 1;
  Causal causal = Causal::none;
  ScaleRule rule{};
  double magnitude = 1;  // of q's components; k and v have unit variance
  std::uint32_t seed = 1;

  [[nodiscard]] Mask mask() const { return {.causal = causal}; }
  [[nodiscard]] std::string text() const;
};

// The numbers of a problem, contiguous. Same problem, same numbers.
struct Data {
  explicit Data(const Problem& problem);

  [[nodiscard]] AttentionInput input() const;
  [[nodiscard]] reference::Input reference_input() const;

  Problem problem;
  std::vector<float> q, k, v;

 private:
  mutable std::vector<double> q64_, k64_, v64_;
};

// What the kernels return, contiguous; every statistic is asked for.
struct ForwardResult {
  std::vector<float> output, lse, entropy, collision, max_logit, variance, lambda;
  std::vector<std::int64_t> support;
};
[[nodiscard]] ForwardResult run_forward(const Data& data, const ParallelFor& parallel_for = run_serially);

// Standard normal upstream gradients for every differentiable result.
[[nodiscard]] reference::GradientInput random_gradient(const Problem& problem);

struct BackwardResult {
  std::vector<float> dq, dk, dv;
};
[[nodiscard]] BackwardResult run_backward(const Data& data, const ForwardResult& forward,
                                          const reference::GradientInput& gradient,
                                          const ParallelFor& parallel_for = run_serially);

// The largest error over budget of each result: at most 1 when right. NaN counts as infinite unless the
// reference has NaN there too.
struct Ratio {
  double worst = 0;
  std::string where;
};
[[nodiscard]] Ratio forward_error_over_budget(const Data& data, const ForwardResult& result);
[[nodiscard]] Ratio backward_error_over_budget(const Data& data, const reference::GradientInput& gradient,
                                               const BackwardResult& result);

}  // namespace isentrope::testing
