// The tangent pass and the second-order pass of a problem: random tangents, and results.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "tools/check/run.h"

namespace isentrope::check {

// Tensors of a call in float64, at a point or as a direction from it. Empty ones are not given;
// tangents that are not given are zero.
struct Tensors {
  std::vector<double> q, k, v, bias, sinks, lambda;

  // Returns views with the extents of the problem's tensors.
  [[nodiscard]] reference::Input input(const Problem& problem) const;
};

// Returns standard normal tangents in the problem's type. Each is missing in one problem of six.
[[nodiscard]] Tensors random_tangents(const Problem& problem);

// Contiguous results with the tangents of all differentiable statistics.
struct TangentResult {
  std::vector<float> output;  // in the problem's type, then widened
  StatisticFields<std::vector<float>> statistics;
};
[[nodiscard]] TangentResult run_tangent(const Data& data, const ForwardResult& forward,
                                        const Tensors& tangents,
                                        const std::optional<AttentionOptions>& options = {},
                                        const Passes& passes = {});

// Gradients of the tangents with respect to the inputs, for upstream gradients of the tangents.
[[nodiscard]] BackwardResult run_second_order(const Data& data, const ForwardResult& forward,
                                              const Tensors& tangents,
                                              const TangentResult& tangent_result,
                                              const reference::GradientInput& gradient,
                                              const std::optional<AttentionOptions>& options = {},
                                              const Passes& passes = {});

}  // namespace isentrope::check
