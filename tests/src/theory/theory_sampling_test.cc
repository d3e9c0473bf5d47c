// The laws against sampled rows, within their stated errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <tuple>
#include <vector>

#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"
#include "isentrope/theory/sampled_gradient.h"

namespace isentrope::theory {
namespace {

struct Sample {
  double mean, standard_error;
};

struct RowSamples {
  Sample entropy, collision;
};

// Samples rows of n independent logits.
RowSamples sample_rows(int n, int rows, const std::function<double(std::mt19937_64&)>& draw) {
  std::mt19937_64 random(20211221);
  double entropy = 0, entropy2 = 0, collision = 0, collision2 = 0;
  std::vector<double> z(static_cast<std::size_t>(n));
  for (int row = 0; row < rows; ++row) {
    for (double& value : z) value = draw(random);
    const double most = *std::max_element(z.begin(), z.end());
    double s0 = 0, s1 = 0, s2 = 0;
    for (const double value : z) {
      const double t = value - most, e = std::exp(t);
      s0 += e, s1 += e * t, s2 += e * e;
    }
    const double h = std::log(s0) - s1 / s0, c = s2 / (s0 * s0);
    entropy += h, entropy2 += h * h, collision += c, collision2 += c * c;
  }
  const auto sample = [&](double sum, double square) {
    const double mean = sum / rows;
    return Sample{mean, std::sqrt(std::max(square / rows - mean * mean, 0.0) / rows)};
  };
  return {sample(entropy, entropy2), sample(collision, collision2)};
}

// Returns the cosine of a random direction with a fixed one.
double draw_cosine(std::mt19937_64& random, int dim) {
  std::normal_distribution<double> normal;
  std::gamma_distribution<double> rest((dim - 1) / 2.0, 2);
  const double x = normal(random);
  return x / std::sqrt(x * x + rest(random));
}

TEST(MonteCarlo, SphereEntropyWithinItsStatedError) {
  for (const auto& [n, dim, lambda] : std::vector<std::tuple<int, int, double>>{
           {64, 64, 0.125}, {512, 64, 0.125}, {512, 8, 0.4}, {512, 3, 1.5}}) {
    const SphereEntropy law = sphere_entropy(n, dim, lambda);
    const Sample sample = sample_rows(n, 2000, [&](auto& random) {
                            return lambda * dim * draw_cosine(random, dim);
                          }).entropy;
    EXPECT_NEAR(sample.mean, law.entropy, std::abs(law.correction) + 5 * sample.standard_error)
        << n << " " << dim;
    // The correction reduces the law's error.
    EXPECT_NEAR(sample.mean, law.entropy + law.correction,
                0.3 * std::abs(law.correction) + 5 * sample.standard_error);
  }
}

TEST(MonteCarlo, RowExpectationsWhereTheAnnealedLawFails) {
  for (const auto& [n, dim, lambda] : std::vector<std::tuple<int, int, double>>{{512, 64, 1.0},
                                                                                {512, 64, 0.125},
                                                                                {1, 64, 1.0},
                                                                                {2, 64, 0.5},
                                                                                {100, 2, 8.0},
                                                                                {1000, 3, 1.5}}) {
    const RowExpectation law = sphere_row(n, dim, lambda);
    const RowSamples sample =
        sample_rows(n, 4000, [&](auto& random) { return lambda * dim * draw_cosine(random, dim); });
    EXPECT_NEAR(sample.entropy.mean, law.entropy, 5 * sample.entropy.standard_error + 1e-9)
        << n << " " << dim;
    EXPECT_NEAR(sample.collision.mean, law.collision, 5 * sample.collision.standard_error + 1e-9);
    EXPECT_GE(law.entropy, 0);
    EXPECT_LE(law.entropy, std::log(n));
  }
}

TEST(MonteCarlo, GradientMassOfNormalScores) {
  std::normal_distribution<double> normal;
  for (const double alpha : {0.5, 1.0, 2.0, 6.0}) {
    const Sample sample =
        sample_rows(512, 4000, [&](auto& random) { return alpha * normal(random); }).collision;
    EXPECT_NEAR(sample.mean, normal_row(512, alpha).collision, 5 * sample.standard_error + 1e-9)
        << alpha;
    // The annealed law holds while alpha is small against sqrt(2 ln n) / 2.
    if (alpha <= 1) {
      EXPECT_NEAR(alpha * (1 - sample.mean), normal_gradient_mass(512, alpha), 0.01 * alpha);
    }
  }
}

// Top scores and the mean of the rest represent the whole row.
TEST(SampledGradient, MeanIsTheExpectation) {
  const std::vector<double> alphas = {0.5, 1, 2.5, 6, 20};
  for (const double n : {1.0, 2.0, 100.0, 5000.0, 1e9}) {
    const auto spreads = sampled_gradient(n, alphas, 4000);
    for (std::size_t i = 0; i < alphas.size(); ++i) {
      const double mass = alphas[i] * (1 - normal_row(n, alphas[i]).collision);
      // 5 standard errors; the standard deviation of 1 - sum p^2 is at most 1/2.
      EXPECT_NEAR(spreads[i].mean, mass, alphas[i] * 2.5 / std::sqrt(4000))
          << n << " " << alphas[i];
    }
  }
}

// ln n / sqrt(d) leaves more and more rows with one key at large n (Su 2021), log_512 n does not.
TEST(SampledGradient, LogLengthStarvesRowsAtLargeN) {
  double last = 0;
  for (const double n : {20.0, 64.0, 512.0, 65536.0}) {
    const auto spreads =
        sampled_gradient(n, std::vector{std::log(n), std::log(n) / std::log(512), 1.0}, 4000);
    EXPECT_GT(spreads[0].starved, last) << n;
    EXPECT_EQ(spreads[1].starved, 0) << n;
    EXPECT_EQ(spreads[2].starved, 0) << n;
    last = spreads[0].starved;
  }
  EXPECT_GT(last, 0.1);
}

}  // namespace
}  // namespace isentrope::theory
