#include "isentrope/theory/sampled_gradient.h"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <random>

#include "src/theory/domain.h"

namespace isentrope::theory {
namespace {

constexpr double kDrawn = 256;
constexpr double kStarved = 0.05;

// The largest scores of a row, in falling order.
void draw_largest(double n, std::mt19937_64& random, std::vector<double>& scores) {
  scores.clear();
  // -ln(1 - u) of the k-th smallest of n uniform u grows by an exponential over n - k + 1 (Renyi
  // 1953).
  double sum = 0;
  for (double k = 0; k < std::min(n, kDrawn); ++k) {
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    sum -= std::log(uniform) / (n - k);
    scores.push_back(std::numbers::sqrt2 *
                     boost::math::erfc_inv(2 * std::min(-std::expm1(-sum), 1 - 0x1p-53)));
  }
}

// ln Phi(x), the normal distribution function; by its asymptote where erfc would underflow.
double log_normal_below(double x) {
  if (x > -30) return std::log(boost::math::erfc(-x / std::numbers::sqrt2) / 2);
  return -x * x / 2 - std::log(-x * std::sqrt(2 * std::numbers::pi));
}

// ln E[e^(alpha s)] for a normal s below `limit`.
double log_moment_below(double alpha, double limit) {
  return alpha * alpha / 2 + log_normal_below(limit - alpha) - log_normal_below(limit);
}

// 1 - sum p^2 of one row.
double open_share(double n, double alpha, const std::vector<double>& scores) {
  const double most = scores.front(), rest = n - static_cast<double>(scores.size());
  double weight = 0, square = 0;
  for (const double score : scores) {
    const double e = std::exp(alpha * (score - most));
    weight += e;
    square += e * e;
  }
  if (rest > 0) {
    weight += rest * std::exp(log_moment_below(alpha, scores.back()) - alpha * most);
    square += rest * std::exp(log_moment_below(2 * alpha, scores.back()) - 2 * alpha * most);
  }
  return std::max(0.0, 1 - square / (weight * weight));
}

GradientSpread spread_of(double alpha, std::vector<double>& open) {
  std::ranges::sort(open);
  const auto count = static_cast<double>(open.size());
  double sum = 0;
  for (const double share : open) sum += share;
  const auto starved = std::ranges::lower_bound(open, kStarved) - open.begin();
  return {alpha * sum / count, alpha * open[open.size() / 2], alpha * open[open.size() / 10],
          static_cast<double>(starved) / count};
}

}  // namespace

std::vector<GradientSpread> sampled_gradient(double n, std::span<const double> alphas, int rows,
                                             std::uint64_t seed) {
  require_length("sampled_gradient", n);
  require("sampled_gradient", "rows", rows, 1, 1e6);
  for (const double alpha : alphas) require("sampled_gradient", "alpha", alpha, 0, 60);
  std::mt19937_64 random(seed);
  std::vector<double> scores;
  std::vector<std::vector<double>> open(alphas.size());
  for (int row = 0; row < rows; ++row) {
    draw_largest(n, random, scores);
    for (std::size_t i = 0; i < alphas.size(); ++i)
      open[i].push_back(open_share(n, alphas[i], scores));
  }
  std::vector<GradientSpread> spreads;
  for (std::size_t i = 0; i < alphas.size(); ++i) spreads.push_back(spread_of(alphas[i], open[i]));
  return spreads;
}

}  // namespace isentrope::theory
