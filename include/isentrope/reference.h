// The float64 reference: attention by its definition, one plain loop per formula. It is the oracle
// of the tests, documents what the kernels compute, and computes float64 tensors. Time grows with
// queries times keys, where keys are those of the whole sequence; memory grows with the keys of the
// call. Arguments are not validated.
#pragma once

#include <vector>

#include "isentrope/attention.h"
#include "isentrope/statistics.h"
#include "isentrope/view.h"

namespace isentrope::reference {

// Tensors of a call, with the shapes of AttentionInput, not paged.
struct Input {
  View<const double, 4> q, k, v;
  // These replace the members of AttentionOptions, which are float.
  View<const double, 4> bias{};
  View<const double, 1> sinks{};
  View<const double, 3> lambda{};
  // As in PagedKeys; k and v are then [sequences, kv_heads, keys, dim]. Forward only.
  View<const std::int64_t, 1> seqused_k{}, cu_seq_q{};
};

// Results of the forward pass, row-major, with the shapes of the kernels' results.
struct Result {
  std::vector<double> output;
  std::vector<RowStats> statistics;
  std::vector<double> lambda;
  // Condition numbers, from which error budgets are computed (docs/contributors/numerics.md).
  std::vector<double> value_magnitude;  // sum_j p_j |v_jc|, per output component
  std::vector<double> value_sum;        // sum_j |v_jc|, per output component
  std::vector<double> logit_magnitude;  // largest sum of magnitudes in any logit of the row
  std::vector<double> entropy_slope;    // sum_j p_j |z_j - mean|, per row
  std::vector<double> mean_below_max;   // sum_j p_j (max - z_j), per row
  std::vector<double> distance_slope;   // sum_j p_j ||i - j| - distance|, per row
};

// Computes the output and all statistics. The options' parallel_for is not used.
[[nodiscard]] Result attention_forward(const Input& input, const AttentionOptions& options);

// Upstream gradients, row-major; an empty vector stands for zeros.
struct GradientInput {
  std::vector<double> d_output{};
  StatisticFields<std::vector<double>> d_statistics{};
};

// One vector for each gradient, row-major. d_bias is empty without a bias.
struct GradientFields {
  std::vector<double> dq, dk, dv, d_bias, d_lambda, d_sinks;
};

// Gradients, and what error budgets are computed from (docs/contributors/numerics.md).
struct Gradients : GradientFields {
  GradientFields magnitude;  // the same sums over magnitudes
  // Contribution of the term of max_probability's gradient that only the largest key has, if
  // rounding decides which key that is: among keys with nearly equal logits, and among equal keys.
  GradientFields nearly_tied, tied;
  // The part of `magnitude` from weights that are too small for a float, but for dv and d_sinks.
  GradientFields underflowing;
  // Change of the gradients but dv if the mean gradient of each row, output.d_output, changes by 1.
  GradientFields of_mean;
  // Change of dq, dk and d_lambda if the gradient of each logit changes by 1, by magnitudes.
  GradientFields of_logits;
};

// Computes all gradients. The forward pass is computed again.
[[nodiscard]] Gradients attention_backward(const Input& input, const AttentionOptions& options,
                                           const GradientInput& gradient);

// Tangents of the results, row-major. Statistics without a gradient have none.
struct TangentFields {
  std::vector<double> output;
  StatisticFields<std::vector<double>> statistics;
};

// Tangents, and what error budgets are computed from.
struct Tangents : TangentFields {
  TangentFields magnitude;  // the same sums over magnitudes
  // Change of max_probability's tangent if rounding chooses another one of nearly equal largest
  // keys, per row.
  std::vector<double> nearly_tied;
};

// Computes the tangents of the output and of all statistics. Tensors of `tangent` without data are
// zero.
[[nodiscard]] Tangents attention_tangent(const Input& input, const AttentionOptions& options,
                                         const Input& tangent);

// Computes the second derivatives of attention_forward() along two tangents: the derivative of
// attention_tangent() along `second`. No kernel computes it.
[[nodiscard]] TangentFields attention_second_tangent(const Input& input,
                                                     const AttentionOptions& options,
                                                     const Input& tangent, const Input& second);

// Computes the gradients of attention_tangent() with respect to the input, for upstream gradients
// of the tangents. `nearly_tied` includes equal keys; `tied` and `of_logits` are zero.
[[nodiscard]] Gradients attention_second_order(const Input& input, const AttentionOptions& options,
                                               const Input& tangent, const GradientInput& gradient);

// Computes the weights that keys receive, [sequences, heads, keys], once for each set of row
// weights [batch, heads, queries]: the sums are linear in these, so error budgets are sums too.
[[nodiscard]] std::vector<std::vector<double>> received(
    const Input& input, const AttentionOptions& options,
    const std::vector<std::vector<double>>& weights);

// Weights of chosen keys and the derivatives of their logits, as weights_at() of key_statistics.h.
struct KeyWeights {
  std::vector<double> weights, by_score, by_bias;
};
[[nodiscard]] KeyWeights weights_at(const Input& input, const AttentionOptions& options,
                                    const View<const std::int64_t, 4>& keys);

}  // namespace isentrope::reference
