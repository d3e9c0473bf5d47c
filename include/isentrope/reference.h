// The float64 reference: attention as its definition reads, one plain loop per formula. It is the
// oracle of the tests and the documentation of what the kernels compute, and what tensors of
// float64 are computed by. Time grows with queries times keys, those of the whole sequence,
// memory with the keys of the call.
#pragma once

#include <vector>

#include "isentrope/attention.h"
#include "isentrope/row_state.h"
#include "isentrope/view.h"

namespace isentrope::reference {

// Shapes as AttentionInput has them; not paged. The options' parallel_for is not used.
struct Input {
  View<const double, 4> q, k, v;
  // In double. They take the place of those of AttentionOptions, which are float.
  View<const double, 4> bias{};
  View<const double, 1> sinks{};
  View<const double, 3> lambda{};
};

// Row-major, shaped as the kernels' results are.
struct Result {
  std::vector<double> output;
  std::vector<RowStats> statistics;
  std::vector<double> lambda;
  // Conditioning, from which error budgets are computed (docs/contributors/numerics.md).
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

// Of the gradients, row-major. d_bias is empty without a bias.
struct GradientFields {
  std::vector<double> dq, dk, dv, d_bias, d_lambda, d_sinks;
};

// With what error budgets are computed from (docs/contributors/numerics.md).
struct Gradients : GradientFields {
  GradientFields magnitude;  // the same sums over magnitudes
  // What the term of max_probability's gradient that the largest key alone has may bring or leave
  // out, where rounding decides which key that is: of logits that are nearly equal, and of equal
  // ones.
  GradientFields nearly_tied, tied;
  // How far results move where the mean gradient of each row, output.d_output, does by 1. Of
  // d_bias, d_lambda and d_sinks alone.
  GradientFields of_mean;
};

[[nodiscard]] Gradients attention_backward(const Input& input, const AttentionOptions& options,
                                           const GradientInput& gradient);

}  // namespace isentrope::reference
