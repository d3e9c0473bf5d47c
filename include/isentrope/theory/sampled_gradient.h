// The distribution of the gradient mass over sampled rows of normal scores.
//
// The mean over rows (row_expectation.h) stays high however sharp the scale is: a few rows whose
// two largest scores nearly tie pass all of the gradient. A scale starves a model if most rows pass
// none, which shows in the quantiles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isentrope::theory {

// Distribution of the gradient mass alpha (1 - sum p^2) over rows, at one alpha.
struct GradientSpread {
  double mean, median, lower_decile;
  double starved;  // share of rows in which one key has nearly all the weight: 1 - sum p^2 < 0.05
};

// Returns one result per alpha, all from the same rows of n independent standard normal scores. The
// largest 256 scores of a row are drawn exactly, by the spacings of order statistics (Renyi 1953);
// the rest are replaced by their conditional mean. The same seed gives the same rows. n in [1,
// 1e18], alpha in [0, 60], rows in [1, 1e6]; throws Error otherwise. The standard error of a share
// is at most 1 / (2 sqrt(rows)).
[[nodiscard]] std::vector<GradientSpread> sampled_gradient(double n, std::span<const double> alphas,
                                                           int rows = 1000, std::uint64_t seed = 1);

}  // namespace isentrope::theory
