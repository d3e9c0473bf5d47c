#include "isentrope/theory/variance.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isentrope/error.h"

namespace isentrope::theory {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw Error("[check_score_variance] " + message);
}

std::size_t rows_of(std::span<const double> q, std::span<const double> k, std::int64_t dim) {
  if (dim < 1) reject("dim must be at least 1; got dim = " + std::to_string(dim));
  const auto width = static_cast<std::size_t>(dim);
  if (q.size() != k.size() || q.size() % width != 0 || q.size() / width < 3) {
    reject("q and k must hold as many rows of dim = " + std::to_string(dim) + ", at least 3; got " +
           std::to_string(q.size()) + " and " + std::to_string(k.size()) + " numbers");
  }
  const auto bounded = [](double x) { return std::abs(x) <= 1e60; };  // its fourth power is finite
  if (!std::ranges::all_of(q, bounded) || !std::ranges::all_of(k, bounded)) {
    reject("q and k must be finite and at most 1e+60 in magnitude; got a number that is not");
  }
  return q.size() / width;
}

Check check(double measured, double expected, double standard_error) {
  const double rounding = 1e-9 * expected;  // components of 1 and -1 have a standard error of 0
  const bool holds = std::abs(measured - expected) <= 5 * standard_error + rounding;
  return {measured, expected, standard_error, holds};
}

// Moments of the rows x_i of one matrix.
struct Moments {
  std::vector<double> mean;        // E x_c
  std::vector<double> covariance;  // E x_c x_e - E x_c E x_e, [dim, dim]
};

// Sums differences from the first row, which lose nothing where the mean is large.
Moments moments_of(std::span<const double> x, std::size_t rows, std::size_t dim) {
  Moments moments{std::vector<double>(dim), std::vector<double>(dim * dim)};
  std::vector<double> row(dim);
  for (std::size_t i = 1; i < rows; ++i) {
    for (std::size_t c = 0; c < dim; ++c) row[c] = x[i * dim + c] - x[c];
    for (std::size_t c = 0; c < dim; ++c) {
      moments.mean[c] += row[c];
      for (std::size_t e = 0; e < dim; ++e) moments.covariance[c * dim + e] += row[c] * row[e];
    }
  }
  const double weight = 1 / static_cast<double>(rows);
  for (double& value : moments.mean) value *= weight;
  for (std::size_t c = 0; c < dim; ++c) {
    for (std::size_t e = 0; e < dim; ++e) {
      double& value = moments.covariance[c * dim + e];
      value = value * weight - moments.mean[c] * moments.mean[e];
    }
  }
  for (std::size_t c = 0; c < dim; ++c) moments.mean[c] += x[c];
  return moments;
}

// m' C m for the covariance C of the rows x_i, as E (m'(x_i - E x))^2: sums over C would cancel
// where the rows hardly vary along m.
double variance_along(const std::vector<double>& m, std::span<const double> x,
                      const std::vector<double>& mean) {
  const std::size_t rows = x.size() / m.size();
  double sum = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    double along = 0;
    for (std::size_t c = 0; c < m.size(); ++c) along += m[c] * (x[i * m.size() + c] - mean[c]);
    sum += along * along;
  }
  return sum / static_cast<double>(rows);
}

Check component_mean(const Moments& moments, double count) {
  double mean = 0, square = 0;
  const std::size_t dim = moments.mean.size();
  for (std::size_t c = 0; c < dim; ++c) {
    const double of_c = moments.mean[c];
    mean += of_c / static_cast<double>(dim);
    square += (moments.covariance[c * dim + c] + of_c * of_c) / static_cast<double>(dim);
  }
  return check(mean, 0, std::sqrt(square / count));
}

// E (x - E x)^2 over all components, with one mean for all of them.
Check component_variance(std::span<const double> x, double mean) {
  const double count = static_cast<double>(x.size());
  double second = 0, fourth = 0;
  for (const double value : x) {
    const double square = (value - mean) * (value - mean);
    second += square / count;
    fourth += square * square / count;
  }
  return check(second, 1, std::sqrt(std::max(fourth - second * second, 0.0) / count));
}

// Mean of the squared correlations of two components. Independent ones correlate by chance: mean
// square 1 / (rows - 1), standard deviation sqrt(2) times that for each pair.
Check component_correlation(const Moments& moments, double rows) {
  const std::size_t dim = moments.mean.size();
  const auto covariance = [&](std::size_t c, std::size_t e) {
    return moments.covariance[c * dim + e];
  };
  const double expected = 1 / (rows - 1);
  if (dim == 1) return check(expected, expected, 0);
  double sum = 0;
  for (std::size_t c = 0; c < dim; ++c) {
    for (std::size_t e = 0; e < c; ++e) {
      const double scale = covariance(c, c) * covariance(e, e);
      if (scale > 0) sum += covariance(c, e) * covariance(c, e) / scale;
    }
  }
  const double pairs = static_cast<double>(dim) * static_cast<double>(dim - 1) / 2;
  return check(sum / pairs, expected, std::sqrt(2 / pairs) * expected);
}

Check cross_correlation(std::span<const double> q, std::span<const double> k, const Check& q_mean,
                        const Check& k_mean, double scale) {
  double covariance = 0;
  const double count = static_cast<double>(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    covariance += (q[i] - q_mean.measured) * (k[i] - k_mean.measured) / count;
  }
  return check(scale > 0 ? covariance / scale : 0, 0, 1 / std::sqrt(count));
}

}  // namespace

ScoreVariance check_score_variance(std::span<const double> q, std::span<const double> k,
                                   std::int64_t dim) {
  const std::size_t rows = rows_of(q, k, dim);
  const auto width = static_cast<std::size_t>(dim);
  const double count = static_cast<double>(q.size()), n = static_cast<double>(rows);
  const Moments of_q = moments_of(q, rows, width), of_k = moments_of(k, rows, width);

  ScoreVariance result{};
  result.q_mean = component_mean(of_q, count);
  result.k_mean = component_mean(of_k, count);
  result.q_variance = component_variance(q, result.q_mean.measured);
  result.k_variance = component_variance(k, result.k_mean.measured);
  result.q_correlation = component_correlation(of_q, n);
  result.k_correlation = component_correlation(of_k, n);
  result.qk_correlation =
      cross_correlation(q, k, result.q_mean, result.k_mean,
                        std::sqrt(result.q_variance.measured * result.k_variance.measured));

  // Over pairs of rows q and k are independent, so E[(q.k)^2] = sum_ce E[q_c q_e] E[k_c k_e]. The
  // square of the mean cancels: with covariances C, D and means m, l, Var = tr CD + l'Cl + m'Dm.
  for (std::size_t c = 0; c < width; ++c) result.score_mean += of_q.mean[c] * of_k.mean[c];
  for (std::size_t ce = 0; ce < width * width; ++ce) {
    result.score_variance += of_q.covariance[ce] * of_k.covariance[ce];
  }
  result.score_variance = std::max(0.0, result.score_variance) +
                          variance_along(of_k.mean, q, of_q.mean) +
                          variance_along(of_q.mean, k, of_k.mean);
  result.lambda = 1 / std::sqrt(result.score_variance);
  result.standard_lambda = 1 / std::sqrt(static_cast<double>(dim));
  result.holds = result.q_mean.holds && result.k_mean.holds && result.q_variance.holds &&
                 result.k_variance.holds && result.q_correlation.holds &&
                 result.k_correlation.holds && result.qk_correlation.holds;
  return result;
}

}  // namespace isentrope::theory
