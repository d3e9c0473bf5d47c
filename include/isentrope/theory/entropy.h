// Entropy of a row: softmax over keys uniform on the sphere of radius sqrt(d), |q| = sqrt(d) (Su
// 2021, "entropy invariance").
//
// With s the cosine of query and key, z = lambda d s, and g(a) = E[e^(a s)],
//
//   H = ln n + ln g(lambda d) - lambda d (ln g)'(lambda d)
//
// Numerator and denominator of the softmax are averaged separately (the annealed average). That
// describes a row whose weight is spread over many keys. If few keys have most of it, H leaves
// [0, ln n] and in_range is false; row_expectation.h averages over rows and remains correct.
//
// Domains: n in [1, 1e18], dim in [2, 1e7], lambda in [0, 1e6]; functions throw Error otherwise.
// Entropies are in nats. The relative error is below 1e-11, except where H crosses 0: there it is
// 3e-14 ln n absolute, and an H within it is 0.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope::theory {

// Entropy of a row by three formulas, and whether each is possible.
struct SphereEntropy {
  double entropy;         // H above
  double correction;      // leading term of order 1/n that H omits: its size is the error of H
  double saddle;          // H by Laplace's method at this lambda: ln n + (d/2) ln(1 - c^2)
  double laplace;         // the same with the slope at lambda = 1: ln n - 0.2406... lambda d
  bool in_range;          // entropy lies in [0, ln n]
  bool laplace_in_range;  // laplace does
};

// Returns the entropy of a row of n keys in dim dimensions at the softmax scale lambda.
[[nodiscard]] SphereEntropy sphere_entropy(double n, std::int64_t dim, double lambda);

// Returns the loss of entropy per unit of lambda d by Laplace's method, the 0.24 of Su 2021. The
// method puts the weight where lambda cos t + ln sin t is largest, at cos t = c = (sqrt(1 + 4
// lambda^2) - 1) / (2 lambda), and gives H = ln n + (d/2) ln(1 - c^2). The loss is
//   k(lambda) = -ln(1 - c^2) / (2 lambda),  k(1) = (1/2) ln((1 + sqrt 5) / 2) = 0.24060591...
// It is lambda / 2 for small lambda, and within 3 % of k(1) from 0.88 to 2. k(0) = 0.
[[nodiscard]] double laplace_coefficient(double lambda = 1);

// Returns the lambda at which H equals `entropy`, which must be in [0, ln n]; 0 for ln n. It exists
// because H decreases in lambda; for few dimensions it grows as a power of n.
[[nodiscard]] double lambda_of_entropy(double entropy, double n, std::int64_t dim);

// Returns the kappa at which the rule kappa ln n / d has this lambda at n >= 2.
[[nodiscard]] double kappa_of_lambda(double lambda, double n, std::int64_t dim);
// Returns sqrt(d) / ln base, for which that rule is standard at n = base. base is in (1, 1e18].
[[nodiscard]] double kappa_of_base(double base, std::int64_t dim);

// The base B at which log_B(n) / sqrt(d) gives rows of two lengths the same entropy.
struct EntropyBase {
  double base, kappa;  // kappa = sqrt(d) / ln base
  double entropy;      // at both lengths
  bool in_range;       // entropy >= 0
};

// Returns that base for the lengths n and other_n. Throws Error if they are equal or below 2, or if
// there is none: for small d and large n entropy grows with n, however sharp the rows.
[[nodiscard]] EntropyBase entropy_base(double n, double other_n, std::int64_t dim);

// Returns the rule that keeps H at `entropy`: a table at the given lengths, which must increase.
[[nodiscard]] ScaleRule constant_entropy_rule(double entropy, const std::vector<double>& lengths,
                                              std::int64_t dim);

}  // namespace isentrope::theory
