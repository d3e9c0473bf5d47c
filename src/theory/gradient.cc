#include "isentrope/theory/gradient.h"

#include <algorithm>
#include <boost/math/special_functions/lambert_w.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>

#include "isentrope/theory/row_expectation.h"
#include "src/rules/cosine_optimum.h"
#include "src/rules/sphere_moment.h"
#include "src/theory/domain.h"

namespace isentrope::theory {
namespace {

constexpr double kLargestDim = 65536;
constexpr double kLargestAlpha = 1e30;
constexpr double kLongest = 1e18;

void require_score_dim(std::string_view function, std::int64_t dim) {
  require(function, "dim", static_cast<double>(dim), 2, kLargestDim);
}

template <class Basis>
Fit fit(std::string_view function, std::span<const double> n, std::span<const double> alpha,
        Basis basis) {
  if (n.empty() || n.size() != alpha.size()) {
    throw Error("[" + std::string(function) + "] n and alpha must have one size above 0; got " +
                std::to_string(n.size()) + " and " + std::to_string(alpha.size()));
  }
  double product = 0, square = 0;
  for (std::size_t i = 0; i < n.size(); ++i) {
    require(function, "n", n[i], std::nextafter(1, 2), 1e18);
    product += basis(n[i]) * alpha[i];
    square += basis(n[i]) * basis(n[i]);
  }
  Fit result{product / square, 0, 0};
  for (std::size_t i = 0; i < n.size(); ++i) {
    const double residual = alpha[i] - result.c * basis(n[i]);
    result.rms_residual += residual * residual;
    result.largest_residual = std::max(result.largest_residual, std::abs(residual));
  }
  result.rms_residual = std::sqrt(result.rms_residual / static_cast<double>(n.size()));
  return result;
}

}  // namespace

double normal_gradient_mass(double n, double alpha) {
  require_length("normal_gradient_mass", n);
  require("normal_gradient_mass", "alpha", alpha, 0, kLargestAlpha);
  return alpha * -std::expm1(alpha * alpha - std::log(n));
}

double cosine_gradient_mass(double n, std::int64_t dim, double alpha) {
  require_length("cosine_gradient_mass", n);
  require_score_dim("cosine_gradient_mass", dim);
  require("cosine_gradient_mass", "alpha", alpha, 0, kLargestAlpha);
  const double d = static_cast<double>(dim);
  const SphereMoment once = sphere_moment(d, alpha), twice = sphere_moment(d, 2 * alpha);
  const double log_ratio =
      alpha > d ? twice.log_scaled - 2 * once.log_scaled : twice.log - 2 * once.log;
  return alpha * -std::expm1(log_ratio - std::log(n));
}

double normal_optimum(double n) {
  require_length("normal_optimum", n);
  if (n == 1) return 0;  // W0(sqrt(e) / 2) is 1/2, up to rounding
  return std::sqrt(boost::math::lambert_w0(n * (std::exp(0.5) / 2)) - 0.5);
}

double cosine_optimum(double n, std::int64_t dim) {
  require_length("cosine_optimum", n);
  require_score_dim("cosine_optimum", dim);
  return isentrope::cosine_optimum(n, static_cast<double>(dim));
}

double normal_optimum_length(double alpha) {
  require("normal_optimum_length", "alpha", alpha, 0, normal_optimum(kLongest));
  return (1 + 2 * alpha * alpha) * std::exp(alpha * alpha);
}

double cosine_optimum_length(double alpha, std::int64_t dim) {
  require_score_dim("cosine_optimum_length", dim);
  require("cosine_optimum_length", "alpha", alpha, 0, cosine_optimum(kLongest, dim));
  // Over ln n, in which the optimum is smooth; it rises with n.
  const auto [low, high] = boost::math::tools::bisect(
      [&](double x) { return cosine_optimum(std::min(std::exp(x), kLongest), dim) - alpha; }, 0.0,
      std::log(kLongest), boost::math::tools::eps_tolerance<double>(40));
  return std::exp((low + high) / 2);
}

Fit fit_sqrt_log(std::span<const double> n, std::span<const double> alpha) {
  return fit("fit_sqrt_log", n, alpha, [](double x) { return std::sqrt(std::log(x)); });
}

Fit fit_log(std::span<const double> n, std::span<const double> alpha) {
  return fit("fit_log", n, alpha, [](double x) { return std::log(x); });
}

double cosine_coefficient(std::int64_t dim) {
  require_score_dim("cosine_coefficient", dim);
  return isentrope::cosine_coefficient(static_cast<double>(dim));
}

ScaleRule normal_optimum_rule(const std::vector<double>& lengths) {
  std::vector<double> factors;
  for (const double n : lengths) factors.push_back(normal_optimum(n));
  return ScaleRule::table(lengths, factors);
}

ScaleRule cosine_optimum_rule(const std::vector<double>& lengths, std::int64_t dim) {
  // A table stands on 1/sqrt(d), unit q and k on 1.
  const double root = std::sqrt(static_cast<double>(dim));
  std::vector<double> factors;
  for (const double n : lengths) factors.push_back(cosine_optimum(n, dim) * root);
  return ScaleRule::table(lengths, factors);
}

double rule_gradient_mass(const ScaleRule& rule, std::int64_t n, std::int64_t dim) {
  require_length("rule_gradient_mass", static_cast<double>(n));
  const double alpha = rule.lambda({n, n - 1, n}, dim) * std::sqrt(static_cast<double>(dim));
  return alpha * (1 - normal_row(static_cast<double>(n), alpha).collision);
}

}  // namespace isentrope::theory
