// Var(q.k) = d and its assumptions (Chuang 2023, after Vaswani et al. 2017): the components of q
// and of k have mean 0 and variance 1, and all are independent.
#pragma once

#include <cstdint>
#include <span>

namespace isentrope::theory {

// A measured number, its expected value, and the standard error that chance alone gives it.
struct Check {
  double measured;
  double expected;
  double standard_error;
  bool holds;  // within 5 standard errors and the rounding of sums
};

// Checks of each assumption, and the variance of the scores.
struct ScoreVariance {
  Check q_mean, k_mean;                // of all components: 0
  Check q_variance, k_variance;        // of all components: 1
  Check q_correlation, k_correlation;  // mean squared correlation of two components: 1 / (rows - 1)
  Check qk_correlation;                // of q_ic with k_ic over all rows and components: 0
  double score_mean;                   // of q_i.k_j over all pairs of rows
  double score_variance;               // of the same; d when the assumptions hold
  double lambda;           // 1 / sqrt(score_variance): the scale that gives unit variance
  double standard_lambda;  // 1 / sqrt(d)
  bool holds;              // whether every check does
};

// Tests the assumptions on samples of q and k. Each holds `rows` rows of dim components, one row
// after the other. rows >= 3, dim >= 1, every number at most 1e60 in magnitude; throws Error
// otherwise. qk_correlation compares row i of q with row i of k. Mean and variance of the scores
// are exact over all rows^2 pairs, from the second moments alone.
[[nodiscard]] ScoreVariance check_score_variance(std::span<const double> q,
                                                 std::span<const double> k, std::int64_t dim);

}  // namespace isentrope::theory
