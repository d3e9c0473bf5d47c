// Runs a problem through the kernels, with its own options or with others.
#pragma once

#include <optional>
#include <vector>

#include "isentrope/derivatives.h"
#include "isentrope/key_statistics.h"
#include "tools/check/data.h"

namespace isentrope::check {

// The functions that compute: those of the library, or of another door to it.
struct Passes {
  decltype(&attention_forward) forward = attention_forward;
  decltype(&attention_backward) backward = attention_backward;
  decltype(&attention_tangent) tangent = attention_tangent;
  decltype(&attention_second_order) second_order = attention_second_order;
  decltype(&isentrope::received) received = isentrope::received;
  decltype(&isentrope::weights_at) weights_at = isentrope::weights_at;
};

// Contiguous results with all statistics. Output, dq, dk, dv: in the problem's type, then widened.
struct ForwardResult : StatisticFields<std::vector<float>, std::vector<std::int64_t>> {
  std::vector<float> output;
  std::vector<float> received;         // by keys, from rows that count by Data::row_weights
  std::vector<float> received_of_all;  // by keys, from all rows alike: of attention_forward()
  std::vector<float> chosen;           // weights at Data::chosen_keys
};
[[nodiscard]] ForwardResult run_forward(const Data& data,
                                        const std::optional<AttentionOptions>& options = {},
                                        const Passes& passes = {});

struct BackwardResult {
  std::vector<float> dq, dk, dv, d_bias, d_lambda, d_sinks;
};
[[nodiscard]] BackwardResult run_backward(const Data& data, const ForwardResult& forward,
                                          const reference::GradientInput& gradient,
                                          const std::optional<AttentionOptions>& options = {},
                                          const Passes& passes = {});

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
