#include "isentrope/theory/row_expectation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/theory/domain.h"

namespace isentrope::theory {
namespace {

// The distribution of z as points with weights that sum to 1.
struct Logits {
  std::vector<double> z, weight;
};

constexpr double kNegligible = 1e-30;  // against 1/n >= 1e-18

void normalise(Logits& logits) {
  double sum = 0;
  for (const double weight : logits.weight) sum += weight;
  for (double& weight : logits.weight) weight /= sum;
}

// e^(-e^(tau + z)) turns from 1 to 0 over a few units of z, resolved by points a fifth apart.
constexpr double kStep = 0.2;

Logits normal_logits(double alpha) {
  const double step = kStep / std::max(1.0, alpha);
  const int reach = static_cast<int>(std::ceil(std::sqrt(-2 * std::log(kNegligible)) / step));
  Logits logits;
  for (int i = -reach; i <= reach; ++i) {
    const double s = step * i;
    logits.z.push_back(alpha * s);
    logits.weight.push_back(std::exp(-s * s / 2));
  }
  normalise(logits);
  return logits;
}

// The cosine is tanh v with density sech^(d-1) v: analytic in v for every d, unlike in the angle.
Logits sphere_logits(double d, double a) {
  const double step = kStep / std::max({1.0, a, std::sqrt(d)});
  const double reach = std::acosh(std::pow(kNegligible, -1 / (d - 1)));
  const int count = static_cast<int>(std::ceil(reach / step));
  Logits logits;
  for (int i = -count; i <= count; ++i) {
    const double v = step * i;
    logits.z.push_back(a * std::tanh(v));
    logits.weight.push_back(std::exp(-(d - 1) * std::log(std::cosh(v))));
  }
  normalise(logits);
  return logits;
}

// The averages over one key at t = e^tau, y = tau + z.
struct KeyAverages {
  double rest = 0;    // 1 - phi = E[1 - e^(-e^y)]
  double square = 0;  // t^2 phi'' = E[e^(2y - e^y)]
  double logit = 0;   // E[z e^(y - e^y)]
};

KeyAverages over_keys(const Logits& logits, double tau) {
  KeyAverages average;
  for (std::size_t i = 0; i < logits.z.size(); ++i) {
    const double t = std::exp(tau + logits.z[i]);
    if (t > 745) {  // e^-t is 0
      average.rest += logits.weight[i];
      continue;
    }
    const double lost = -std::expm1(-t), mass = logits.weight[i] * t * (1 - lost);
    average.rest += logits.weight[i] * lost;
    average.square += mass * t;
    average.logit += mass * logits.z[i];
  }
  return average;
}

RowExpectation over_rows(double n, const Logits& logits) {
  constexpr double kFar = 45;  // e^-45 is negligible against 1
  const auto [least, most] = std::ranges::minmax(logits.z);
  const double begin = -std::log(n) - most - kFar, end = 5 - std::min(least, 0.0);
  double lse = 0, square = 0, logit = 0;
  for (double tau = begin; tau <= end; tau += kStep) {
    const KeyAverages key = over_keys(logits, tau);
    const double log_phi = std::log1p(-std::min(key.rest, 1.0));
    lse += std::exp(-std::exp(tau)) - std::exp(n * log_phi);
    const double others = n == 1 ? 1 : std::exp((n - 1) * log_phi);
    square += key.square * others;
    logit += key.logit * others;
  }
  lse *= kStep;
  const double mean_logit = n * kStep * logit;
  return {lse, std::clamp(lse - mean_logit, 0.0, std::log(n)),
          std::clamp(n * kStep * square, 1 / n, 1.0)};
}

}  // namespace

RowExpectation normal_row(double n, double alpha) {
  require_length("normal_row", n);
  require("normal_row", "alpha", alpha, 0, 60);
  return over_rows(n, normal_logits(alpha));
}

RowExpectation sphere_row(double n, std::int64_t dim, double lambda) {
  require_length("sphere_row", n);
  require_dim("sphere_row", dim);
  const double d = static_cast<double>(dim);
  require("sphere_row", "lambda dim", lambda * d, 0, 400);
  return over_rows(n, sphere_logits(d, lambda * d));
}

}  // namespace isentrope::theory
