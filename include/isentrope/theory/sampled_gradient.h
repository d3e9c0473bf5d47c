// How the gradient mass of rows is spread: sampled rows of normal scores.
//
// The mean over rows (row_expectation.h) stays high however sharp the scale is, because a few rows
// whose two largest scores nearly tie let everything through. A scale starves a model when the
// other rows let nothing through, and that shows in the quantiles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isentrope::theory {

struct GradientSpread {
  double mean, median, lower_decile;  // of alpha (1 - sum p^2) over rows
  double starved;  // share of rows where one key has nearly all weight: 1 - sum p^2 < 0.05
};

// One spread per alpha, all from the same rows of n independent standard normal scores. The largest
// 256 scores of a row are drawn exactly, by the spacings of order statistics; the rest enters by
// its conditional mean. The same seed gives the same rows. n in [1, 1e18], alpha in [0, 60], rows
// in [1, 1e6]; Error otherwise. Standard error of a share: at most 1 / (2 sqrt(rows)).
[[nodiscard]] std::vector<GradientSpread> sampled_gradient(double n, std::span<const double> alphas,
                                                           int rows = 1000, std::uint64_t seed = 1);

}  // namespace isentrope::theory
