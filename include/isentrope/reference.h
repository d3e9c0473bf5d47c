// The float64 reference: attention by its definition, one plain loop per formula. It is the oracle
// of the tests, documents what the kernels compute, and computes float64 tensors. Time grows with
// queries times keys, where keys are those of the whole sequence; memory grows with the keys of the
// call.
#pragma once

#include <vector>

#include "isentrope/attention.h"
#include "isentrope/statistics.h"
#include "isentrope/view.h"

namespace isentrope::reference {

// Shapes are those of AttentionInput, not paged. The options' parallel_for is not used.
struct Input {
  View<const double, 4> q, k, v;
  // In double. They replace those of AttentionOptions, which are float.
  View<const double, 4> bias{};
  View<const double, 1> sinks{};
  View<const double, 3> lambda{};
};

// Row-major, with the shapes of the kernels' results.
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

[[nodiscard]] Result attention_forward(const Input& input, const AttentionOptions& options);

// Upstream gradients, row-major; an empty vector stands for zeros.
struct GradientInput {
  std::vector<double> d_output{};
  StatisticFields<std::vector<double>> d_statistics{};
};

// A vector for each gradient, row-major. d_bias is empty without a bias.
struct GradientFields {
  std::vector<double> dq, dk, dv, d_bias, d_lambda, d_sinks;
};

// Gradients, and what error budgets are computed from (docs/contributors/numerics.md).
struct Gradients : GradientFields {
  GradientFields magnitude;  // the same sums over magnitudes
  // The contribution of the term of max_probability's gradient that only the largest key has, where
  // rounding decides which key that is: among keys whose logits are nearly equal, and among keys
  // whose logits are equal.
  GradientFields nearly_tied, tied;
  // The change of results if the mean gradient of each row, output.d_output, changes by 1. Only for
  // d_bias, d_lambda and d_sinks.
  GradientFields of_mean;
};

[[nodiscard]] Gradients attention_backward(const Input& input, const AttentionOptions& options,
                                           const GradientInput& gradient);

}  // namespace isentrope::reference
