// The theory against independent values, and outside its domains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"
#include "isentrope/theory/variance.h"
#include "tests/support/message_of.h"
#include "tests/support/words.h"

namespace isentrope::theory {
namespace {

#define EXPECT_RELATIVE(got, want, tolerance) EXPECT_NEAR((got) / (want), 1, tolerance)

// Values computed at high precision by another program. theory_precision_test has those of optima
// and entropies, for which it computes them itself.

TEST(Oracle, Dimension) {
  EXPECT_RELATIVE(jl_dimension(64), 33.27106466687737, 1e-15);
  EXPECT_RELATIVE(jl_dimension(512), 49.90659700031606, 1e-15);
  EXPECT_RELATIVE(jl_dimension(100000), 92.10340371976183, 1e-15);
}

TEST(Oracle, EntropyInvariantScale) {
  const auto lambda = [](std::int64_t n, std::int64_t dim, double base) {
    return ScaleRule::entropy_invariant(base).lambda({n, n - 1, n}, dim);
  };
  EXPECT_RELATIVE(lambda(64, 64, 512), 0.08333333333333333, 1e-15);
  EXPECT_RELATIVE(lambda(1024, 64, 512), 0.1388888888888889, 1e-15);
  EXPECT_RELATIVE(lambda(16, 128, 512), 0.039283710065919304, 1e-15);
  EXPECT_RELATIVE(lambda(4096, 128, 64), 0.1767766952966369, 1e-15);
}

struct Range {
  std::vector<double> n, alpha;
};

Range optima(const std::function<double(double)>& optimum) {
  Range range;
  for (double n = 40; n <= 20000; n += 40) {
    range.n.push_back(n);
    range.alpha.push_back(optimum(n));
  }
  return range;
}

// Both figures of Su 2023.
TEST(Oracle, FitsOverTheRangeOfTheFigures) {
  const Range normal = optima(normal_optimum);
  const Fit root = fit_sqrt_log(normal.n, normal.alpha);
  EXPECT_RELATIVE(root.c, 0.8413457247205173, 1e-9);
  EXPECT_LT(root.largest_residual, 0.2);
  const Range cosine = optima([](double n) { return cosine_optimum(n, 128); });
  const Fit log = fit_log(cosine.n, cosine.alpha);
  // The independent value comes from numerical minimisation and is accurate to 5e-10.
  EXPECT_RELATIVE(log.c, 3.4876913654682142, 1e-9);
  EXPECT_DOUBLE_EQ(cosine_coefficient(128), log.c);
  EXPECT_LT(log.rms_residual, 1);
}

// Factors that the notes use without printing their value.
TEST(Dimension, FactorsOfTheNotes) {
  EXPECT_RELATIVE(matched_factor(64), 64 / std::log(512.0), 1e-15);
  EXPECT_RELATIVE(matched_factor(64) * std::log(4096.0), matched_dimension(4096, 64), 1e-14);
  EXPECT_NEAR(pair_dimension_factor(), 8.33, 0.02);
  EXPECT_RELATIVE(pair_dimension_factor() * laplace_coefficient(), 2, 1e-15);
  EXPECT_RELATIVE(kappa_of_base(512, 64), 8 / std::log(512.0), 1e-14);
}

// Values printed in the notes.
TEST(Laplace, SlopeIsHalfTheLogarithmOfTheGoldenRatio) {
  EXPECT_DOUBLE_EQ(laplace_coefficient(), std::log(std::numbers::phi) / 2);
  EXPECT_NEAR(laplace_coefficient(), 0.24, 0.001);
  EXPECT_RELATIVE(laplace_coefficient(1e-9), 0.5e-9, 1e-12);
  EXPECT_EQ(laplace_coefficient(0), 0);
  for (const double lambda : {0.88, 1.3, 2.0}) {
    EXPECT_RELATIVE(laplace_coefficient(lambda), laplace_coefficient(1), 0.03) << lambda;
  }
}

// Laplace's method has relative error O(1/d) in the loss of entropy, which grows as d.
TEST(Laplace, SaddleApproachesTheExactLossWithTheDimension) {
  for (const double lambda : {0.5, 1.0, 2.0}) {
    for (const std::int64_t dim : {64, 1024, 65536}) {
      const SphereEntropy h = sphere_entropy(1e6, dim, lambda);
      const double exact = std::log(1e6) - h.entropy, saddle = std::log(1e6) - h.saddle;
      EXPECT_RELATIVE(saddle, exact, 6.0 / static_cast<double>(dim)) << lambda << " " << dim;
    }
  }
  EXPECT_NEAR(sphere_entropy(512, 64, 1).saddle, sphere_entropy(512, 64, 1).laplace, 1e-12);
}

TEST(Laplace, SaysWhenItLeavesItsRange) {
  EXPECT_TRUE(sphere_entropy(512, 64, 0.125).laplace_in_range);
  EXPECT_FALSE(sphere_entropy(512, 64, 0.5).laplace_in_range);
}

TEST(Entropy, LambdaOfEntropyInverts) {
  for (const double n : {2.0, 64.0, 4096.0, 1e12}) {
    for (const std::int64_t dim : {2, 64, 65536}) {
      for (const double share : {0.05, 0.5, 0.9, 0.999}) {
        const double target = share * std::log(n);
        const double lambda = lambda_of_entropy(target, n, dim);
        if (lambda > 1e6) continue;  // two dimensions need lambda of the order of n^2
        EXPECT_NEAR(sphere_entropy(n, dim, lambda).entropy, target, 1e-11) << n << " " << dim;
      }
    }
    EXPECT_EQ(lambda_of_entropy(std::log(n), n, 64), 0);
  }
}

TEST(Entropy, BaseHoldsTheEntropyBetweenTwoLengths) {
  const EntropyBase base = entropy_base(64, 1024, 64);
  const ScaleRule rule = ScaleRule::entropy_invariant(base.base);
  EXPECT_NEAR(sphere_entropy(64, 64, rule.lambda({64, 0, 64}, 64)).entropy, base.entropy, 1e-11);
  EXPECT_NEAR(sphere_entropy(1024, 64, rule.lambda({1024, 0, 1024}, 64)).entropy, base.entropy,
              1e-11);
  EXPECT_RELATIVE(kappa_of_base(base.base, 64), base.kappa, 1e-13);
  EXPECT_RELATIVE(kappa_of_lambda(rule.lambda({64, 0, 64}, 64), 64, 64), base.kappa, 1e-13);
  EXPECT_EQ(entropy_base(1024, 64, 64).base, base.base);
  EXPECT_THROW((void)entropy_base(64, 64, 64), Error);
  EXPECT_THROW((void)entropy_base(64, 1e6, 2), Error);
}

TEST(Entropy, ConstantEntropyRuleHoldsIt) {
  const ScaleRule rule = constant_entropy_rule(3, {64, 256, 1024}, 64);
  for (const std::int64_t n : {64, 256, 1024}) {
    EXPECT_NEAR(sphere_entropy(static_cast<double>(n), 64, rule.lambda({n, 0, n}, 64)).entropy, 3,
                1e-11);
  }
}

TEST(Gradient, OptimaMaximise) {
  for (const double n : {2.0, 100.0, 1e12}) {
    const double normal = normal_optimum(n);
    EXPECT_GT(normal_gradient_mass(n, normal), normal_gradient_mass(n, normal * 1.001));
    EXPECT_GT(normal_gradient_mass(n, normal), normal_gradient_mass(n, normal * 0.999));
    for (const std::int64_t dim : {2, 3, 128, 65536}) {
      const double cosine = cosine_optimum(n, dim);
      EXPECT_GT(cosine_gradient_mass(n, dim, cosine), cosine_gradient_mass(n, dim, cosine * 1.001));
      EXPECT_GT(cosine_gradient_mass(n, dim, cosine), cosine_gradient_mass(n, dim, cosine * 0.999));
    }
  }
  EXPECT_EQ(normal_optimum(1), 0);
  EXPECT_EQ(cosine_optimum(1, 128), 0);
}

// sqrt(d) times the cosine is nearly normal. Su's ranges: 2 to 3 for normals, 25 to 35 for cosines.
TEST(Gradient, LengthsInvertTheOptima) {
  EXPECT_RELATIVE(normal_optimum_length(2), 9 * std::exp(4), 1e-14);
  EXPECT_EQ(normal_optimum_length(0), 1);
  for (const double alpha : {0.5, 2.0, 2.5, 3.0})
    EXPECT_RELATIVE(normal_optimum(normal_optimum_length(alpha)), alpha, 1e-11);
  for (const double alpha : {2.0, 25.0, 30.0, 35.0})
    EXPECT_RELATIVE(cosine_optimum(cosine_optimum_length(alpha, 128), 128), alpha, 1e-9);
  EXPECT_THROW((void)normal_optimum_length(7), Error);
  EXPECT_THROW((void)cosine_optimum_length(-1, 128), Error);
}

TEST(Gradient, CosineOptimumTendsToTheNormalOne) {
  EXPECT_RELATIVE(cosine_optimum(4096, 65536) / 256, normal_optimum(4096), 2e-4);
}

TEST(Gradient, RulesOfTheOptima) {
  const ScaleRule normal = normal_optimum_rule({64, 512}),
                  cosine = cosine_optimum_rule({64, 512}, 128);
  EXPECT_RELATIVE(normal.lambda({512, 0, 512}, 64) * 8, normal_optimum(512), 1e-14);
  EXPECT_RELATIVE(cosine.lambda({512, 0, 512}, 128), cosine_optimum(512, 128), 1e-14);
}

TEST(Gradient, OfARuleIsThatOfItsScale) {
  const double alpha = std::log(4096);
  EXPECT_DOUBLE_EQ(rule_gradient_mass(ScaleRule::log_length(), 4096, 64),
                   alpha * (1 - normal_row(4096, alpha).collision));
}

TEST(RowExpectation, AgreesWithTheAnnealedLawForManyKeys) {
  for (const std::int64_t dim : {2, 3, 64, 4096}) {
    const double lambda = 1 / std::sqrt(static_cast<double>(dim));
    const SphereEntropy annealed = sphere_entropy(1e9, dim, lambda);
    EXPECT_NEAR(sphere_row(1e9, dim, lambda).entropy, annealed.entropy + annealed.correction, 1e-8)
        << dim;
  }
  EXPECT_NEAR(normal_row(1e12, 0).entropy, std::log(1e12), 1e-9);
  EXPECT_NEAR(normal_row(1e12, 0).collision, 1e-12, 1e-20);
  EXPECT_NEAR(normal_row(1, 3).collision, 1, 1e-9);
}

// --- Var(q.k) = d

std::vector<double> normals(std::size_t count, double mean, double deviation, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

TEST(Variance, IsTheDimensionUnderTheAssumptions) {
  const ScoreVariance result =
      check_score_variance(normals(64000, 0, 1, 1), normals(64000, 0, 1, 2), 64);
  EXPECT_TRUE(result.holds);
  EXPECT_NEAR(result.score_variance, 64, 2);
  EXPECT_NEAR(result.lambda, 0.125, 0.002);
  std::vector<double> signs(60, 1);
  for (std::size_t i = 0; i < signs.size(); i += 2) signs[i] = -1;
  EXPECT_TRUE(check_score_variance(signs, signs, 5).q_variance.holds);
}

TEST(Variance, NamesTheAssumptionThatFails) {
  const auto q = normals(64000, 0, 1, 1), k = normals(64000, 0, 1, 2);
  const ScoreVariance wide = check_score_variance(q, normals(64000, 0, 2, 2), 64);
  EXPECT_TRUE(wide.q_variance.holds && wide.k_mean.holds && !wide.k_variance.holds && !wide.holds);
  EXPECT_NEAR(wide.lambda, 0.0625, 0.001);  // the scale that normalises the measured variance
  EXPECT_FALSE(check_score_variance(q, normals(64000, 0.5, 1, 2), 64).k_mean.holds);
  EXPECT_FALSE(check_score_variance(q, q, 64).qk_correlation.holds);
  auto repeated = k;
  for (std::size_t i = 0; i + 1 < repeated.size(); i += 2) repeated[i + 1] = repeated[i];
  EXPECT_FALSE(check_score_variance(q, repeated, 64).k_correlation.holds);
}

TEST(Variance, OfAllPairsIsExact) {
  const std::vector<double> q = {1, 2, -3, 4, 0, 5}, k = {2, 0, 1, 1, -1, 3};
  double mean = 0, square = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const auto a = static_cast<std::size_t>(2 * i), b = static_cast<std::size_t>(2 * j);
      const double score = q[a] * k[b] + q[a + 1] * k[b + 1];
      mean += score / 9, square += score * score / 9;
    }
  }
  EXPECT_NEAR(check_score_variance(q, k, 2).score_variance, square - mean * mean, 1e-12);
  // Rows that sum to 0 do not see a number added to all components of the others.
  const std::vector<double> sum_to_0 = {1, -1, -3, 3, 0, 0};
  const double want = check_score_variance(sum_to_0, k, 2).score_variance;
  std::vector<double> far = k;
  for (double& value : far) value += 1e8;
  EXPECT_NEAR(check_score_variance(sum_to_0, far, 2).score_variance, want, 1e-6);
  EXPECT_NEAR(check_score_variance(far, sum_to_0, 2).score_variance, want, 1e-6);
}

// --- domains

TEST(Domain, ErrorsNameTheArgumentItsDomainAndItsValue) {
  EXPECT_EQ(message_of([] { return sphere_entropy(0.5, 64, 0.1); }),
            "[sphere_entropy] n must be at least 1 and at most 1e+18; got n = 0.5");
  EXPECT_EQ(message_of([] { return cosine_optimum(64, 1); }),
            "[cosine_optimum] dim must be at least 2 and at most 65536; got dim = 1");
  EXPECT_EQ(message_of([] { return normal_optimum(NAN); }),
            "[normal_optimum] n must be at least 1 and at most 1e+18; got n = nan");
  expect_words(message_of([] { return kappa_of_base(1, 64); }), {"got base = 1"});
  expect_words(message_of([] { return lambda_of_entropy(7, 64, 64); }), {"entropy must be"});
  expect_words(message_of([] { return jl_dimension(0); }), {"got n = 0"});
  expect_words(message_of([] { return matched_dimension(64, 64, 1); }), {"base"});
  expect_words(message_of([] { return normal_row(64, -1); }), {"alpha"});
  expect_words(message_of([] { return check_score_variance({}, {}, 4); }), {"rows"});
  expect_words(message_of([] { return fit_log({}, {}); }), {"size"});
}

}  // namespace
}  // namespace isentrope::theory
