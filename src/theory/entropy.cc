#include "isentrope/theory/entropy.h"

#include <cmath>

#include "src/rules/increasing_root.h"
#include "src/rules/sphere_moment.h"
#include "src/theory/domain.h"

namespace isentrope::theory {
namespace {

constexpr double kLargestLambda = 1e6;

// ln n - H = a r(a) - ln g(a): how far the softmax is from uniform. The scaled form loses nothing
// where a is large, the plain one nothing where it is small.
double divergence(double d, double a) {
  const SphereMoment moment = sphere_moment(d, a);
  return a > d ? -moment.log_scaled - a * moment.gap : a * moment.mean - moment.log;
}

// First order of the delta method for ln Z - Y/Z, Z and Y the means over n keys of e^z and z e^z:
// (1/n) (a v (r(2a) - r(a)) - (v - 1)/2), v = g(2a) / g(a)^2.
double annealed_correction(double n, double d, double a) {
  const SphereMoment once = sphere_moment(d, a), twice = sphere_moment(d, 2 * a);
  const bool large = a > d;
  const double log_v = large ? twice.log_scaled - 2 * once.log_scaled : twice.log - 2 * once.log;
  const double rise = large ? once.gap - twice.gap : twice.mean - once.mean;
  return (a * std::exp(log_v) * rise - std::expm1(log_v) / 2) / n;
}

// cos t at the maximum of lambda cos t + ln sin t, without cancellation at small lambda.
double saddle_cosine(double lambda) { return 2 * lambda / (1 + std::hypot(1, 2 * lambda)); }

// -ln(1 - c^2) / 2; 1 - c^2 = c / lambda, for large lambda the form without cancellation.
double saddle_loss(double lambda) {
  const double c = saddle_cosine(lambda);
  return lambda < 1 ? -std::log1p(-c * c) / 2 : -std::log(c / lambda) / 2;
}

}  // namespace

SphereEntropy sphere_entropy(double n, std::int64_t dim, double lambda) {
  require_length("sphere_entropy", n);
  require_dim("sphere_entropy", dim);
  require("sphere_entropy", "lambda", lambda, 0, kLargestLambda);
  const double d = static_cast<double>(dim), log_n = std::log(n);
  SphereEntropy result;
  result.entropy = log_n - divergence(d, lambda * d);
  if (std::abs(result.entropy) <= 2e-14 * log_n) result.entropy = 0;  // the rest is rounding
  result.correction = annealed_correction(n, d, lambda * d);
  result.saddle = log_n - d * saddle_loss(lambda);
  result.laplace = log_n - laplace_coefficient() * lambda * d;
  result.in_range = result.entropy >= 0;
  result.laplace_in_range = result.laplace >= 0;
  return result;
}

double laplace_coefficient(double lambda) {
  require("laplace_coefficient", "lambda", lambda, 0, kLargestLambda);
  return lambda == 0 ? 0 : saddle_loss(lambda) / lambda;
}

double lambda_of_entropy(double entropy, double n, std::int64_t dim) {
  require_length("lambda_of_entropy", n);
  require_dim("lambda_of_entropy", dim);
  require("lambda_of_entropy", "entropy", entropy, 0, std::log(n));
  const double d = static_cast<double>(dim), loss = std::log(n) - entropy;
  if (loss == 0) return 0;
  // Both sides as logarithms: nearly linear, since the divergence starts as a^2 / (2 d).
  const auto excess = [&](double log_a) { return std::log(divergence(d, std::exp(log_a)) / loss); };
  return std::exp(increasing_root(excess, std::log(2 * d * loss) / 2)) / d;
}

double kappa_of_lambda(double lambda, double n, std::int64_t dim) {
  require("kappa_of_lambda", "lambda", lambda, 0, kLargestLambda);
  require("kappa_of_lambda", "n", n, 2, 1e18);
  require_dim("kappa_of_lambda", dim);
  return lambda * static_cast<double>(dim) / std::log(n);
}

double kappa_of_base(double base, std::int64_t dim) {
  require("kappa_of_base", "base", base, std::nextafter(1, 2), 1e18);
  require_dim("kappa_of_base", dim);
  return std::sqrt(static_cast<double>(dim)) / std::log(base);
}

EntropyBase entropy_base(double n, double other_n, std::int64_t dim) {
  require("entropy_base", "n", n, 2, 1e18);
  require("entropy_base", "other_n", other_n, 2, 1e18);
  require_dim("entropy_base", dim);
  const double d = static_cast<double>(dim);
  const double log_short = std::log(std::min(n, other_n)),
               log_long = std::log(std::max(n, other_n));
  if (log_short == log_long) {
    throw Error("[entropy_base] n and other_n must differ; got " + number_text(n) + " twice");
  }
  // How much more the longer row loses to its larger scale, against what it gains in keys. The gain
  // of kappa is bounded: for sharp rows the divergence grows as (d-1)/2 ln a.
  const auto balance = [&](double log_kappa) {
    const double kappa = std::exp(log_kappa);
    return divergence(d, kappa * log_long) - divergence(d, kappa * log_short) -
           (log_long - log_short);
  };
  if ((d - 1) / 2 * std::log(log_long / log_short) <= log_long - log_short) {
    throw Error("[entropy_base] dim must be large enough for a base to hold the entropy from n = " +
                number_text(std::min(n, other_n)) + " to " + number_text(std::max(n, other_n)) +
                "; got dim = " + std::to_string(dim));
  }
  const double kappa = std::exp(increasing_root(balance, std::log(d / (log_short + log_long)) / 2));
  const double entropy = log_short - divergence(d, kappa * log_short);
  return {std::exp(std::sqrt(d) / kappa), kappa, entropy, entropy >= 0};
}

ScaleRule constant_entropy_rule(double entropy, const std::vector<double>& lengths,
                                std::int64_t dim) {
  std::vector<double> factors;
  for (const double n : lengths) {
    factors.push_back(lambda_of_entropy(entropy, n, dim) * std::sqrt(static_cast<double>(dim)));
  }
  return ScaleRule::table(lengths, factors);
}

}  // namespace isentrope::theory
