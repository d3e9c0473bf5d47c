// The theory against 50 and 100 digits (Boost.Multiprecision): d from 2 to 65536, n from 2 to 1e12.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdio>

#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "src/rules/sphere_moment.h"

namespace isentrope::theory {
namespace {

using Wide = boost::multiprecision::cpp_bin_float_50;

constexpr double kTolerance = 1e-12;

struct WideMoment {
  Wide log, mean;  // ln g(a) and (ln g)'(a)
};

// g(a) = sum_k (a^2/4)^k / (k! (d/2)_k): positive terms, summed until they no longer count.
WideMoment power_series(double d, const Wide& a) {
  const Wide x = a * a / 4;
  Wide term = 1, sum = 1, slope = 0;
  for (int k = 1; k < 1000000; ++k) {
    term *= x / (Wide(k) * (Wide(d) / 2 + (k - 1)));
    sum += term;
    slope += k * term;
    if (term < sum * Wide(1e-45) && k > a / 2) break;
  }
  return {log(sum), 2 * slope / (a * sum)};
}

// Hankel's expansion of I_v for a far beyond v^2 (DLMF 10.40.1). It omits e^(-2 a), so a > 60.
WideMoment large_argument(double d, const Wide& a) {
  const Wide v = Wide(d) / 2 - 1;
  Wide term = 1, sum = 1, slope = 0;
  for (int k = 1; k < 60; ++k) {
    const Wide odd = 2 * k - 1;
    const Wide next = -term * (4 * v * v - odd * odd) / (8 * k * a);
    if (abs(next) > abs(term) || abs(next) < Wide(1e-45)) break;
    term = next;
    sum += term;
    slope -= k * term / a;
  }
  const Wide pi = acos(Wide(-1));
  return {lgamma(Wide(d) / 2) + v * log(2 / a) + a - log(2 * pi * a) / 2 + log(sum),
          1 - v / a - 1 / (2 * a) + slope / sum};
}

WideMoment exact(double d, const Wide& a) {
  return a < 2000 || a < d * d / 8 ? power_series(d, a) : large_argument(d, a);
}

constexpr double kDims[] = {2, 3, 4, 7, 16, 64, 100, 101, 102, 103, 128, 256, 1024, 4096, 65536};

TEST(Precision, TheReferenceAgreesWithItself) {
  for (const double d : {2.0, 5.0, 16.0}) {
    const Wide a = 1500;
    EXPECT_LT(abs(power_series(d, a).log - large_argument(d, a).log), Wide(1e-30)) << d;
    EXPECT_LT(abs(power_series(d, a).mean - large_argument(d, a).mean), Wide(1e-30)) << d;
  }
  // d = 3 is elementary: g = sinh(a) / a.
  EXPECT_LT(abs(power_series(3, Wide(10)).log - log(sinh(Wide(10)) / 10)), Wide(1e-40));
}

TEST(Precision, SphereMoments) {
  double worst = 0;
  for (const double d : kDims) {
    for (const double a : {1e-3, 0.1, 1.0, 8.0, 30.0, 49.0, 51.0, 200.0, 1000.0, 3000.0, 1e5}) {
      if (a > 3000 && d > 300) continue;  // the reference would need 1e5 terms
      const SphereMoment got = sphere_moment(d, a);
      const WideMoment want = exact(d, a);
      const auto relative = [](double x, const Wide& y) {
        return std::abs(static_cast<double>(x / y - 1));
      };
      // ln g vanishes as a^2, where only its absolute accuracy is kept.
      const double log_error = std::min(relative(got.log, want.log),
                                        1e6 * std::abs(static_cast<double>(got.log - want.log)));
      const double error =
          std::max({log_error, relative(got.mean, want.mean), relative(got.gap, 1 - want.mean),
                    relative(got.log_scaled, want.log - a)});
      EXPECT_LT(error, 2e-12) << "d = " << d << ", a = " << a;
      worst = std::max(worst, error);
    }
  }
  std::printf("largest relative error of a moment: %.2e\n", worst);
}

TEST(Precision, SphereEntropy) {
  double worst = 0;
  for (const double d : kDims) {
    for (const double n : {2.0, 64.0, 20000.0, 1e12}) {
      for (const double lambda :
           {0.1 / std::sqrt(d), 1 / std::sqrt(d), 2.5 / std::sqrt(d), std::log(n) / std::sqrt(d)}) {
        const Wide a = Wide(lambda) * d;
        const WideMoment moment = exact(d, a);
        const Wide want = log(Wide(n)) + moment.log - a * moment.mean;
        const SphereEntropy got = sphere_entropy(n, static_cast<std::int64_t>(d), lambda);
        EXPECT_EQ(got.in_range, want >= 0);
        const double error = std::abs(static_cast<double>(got.entropy / want - 1));
        EXPECT_LT(error, kTolerance) << "n = " << n << ", d = " << d << ", lambda = " << lambda;
        worst = std::max(worst, error);
      }
    }
  }
  std::printf("largest relative error of an entropy: %.2e\n", worst);
}

// The gradient mass's derivative changes its sign close to the optimum, which is of the order of
// n^2 in two dimensions.
TEST(Precision, CosineOptimumBracketsTheExactOne) {
  for (const double d : kDims) {
    const double tolerance = d == 2 ? 1e-10 : kTolerance;
    for (const double n : {2.0, 40.0, 4096.0, 1e6, 1e12}) {
      const double alpha = cosine_optimum(n, static_cast<std::int64_t>(d));
      const auto slope = [&](const Wide& a) -> Wide {
        const WideMoment once = exact(d, a), twice = exact(d, 2 * a);
        return twice.log - 2 * once.log - log(Wide(n)) + log(1 + 2 * a * (twice.mean - once.mean));
      };
      EXPECT_LT(slope(Wide(alpha) * (1 - Wide(tolerance))), 0) << "n = " << n << ", d = " << d;
      EXPECT_GT(slope(Wide(alpha) * (1 + Wide(tolerance))), 0) << "n = " << n << ", d = " << d;
    }
  }
}

TEST(Precision, NormalOptimumBracketsTheExactOne) {
  for (const double n : {2.0, 3.0, 10.0, 64.0, 512.0, 4096.0, 20000.0, 1e6, 1e9, 1e12}) {
    const Wide alpha = normal_optimum(n);
    const auto slope = [&](const Wide& a) -> Wide {
      return log(1 + 2 * a * a) + a * a - log(Wide(n));
    };
    EXPECT_LT(slope(alpha * (1 - Wide(kTolerance))), 0) << n;
    EXPECT_GT(slope(alpha * (1 + Wide(kTolerance))), 0) << n;
  }
}

TEST(Precision, LambdaOfEntropyBracketsTheExactOne) {
  for (const double d : {2.0, 64.0, 4096.0}) {
    for (const double n : {64.0, 1e6}) {
      for (const double share : {0.5, 0.9}) {
        const double target = share * std::log(n);
        const Wide a = Wide(lambda_of_entropy(target, n, static_cast<std::int64_t>(d))) * d;
        const auto excess = [&](const Wide& x) -> Wide {
          const WideMoment moment = exact(d, x);
          return log(Wide(n)) + moment.log - x * moment.mean - target;
        };
        EXPECT_GT(excess(a * (1 - Wide(kTolerance))), 0) << "n = " << n << ", d = " << d;
        EXPECT_LT(excess(a * (1 + Wide(kTolerance))), 0) << "n = " << n << ", d = " << d;
      }
    }
  }
}

}  // namespace
}  // namespace isentrope::theory
