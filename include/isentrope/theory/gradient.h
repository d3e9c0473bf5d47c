// Gradient through the softmax, and the scale with the largest (Su 2023, "gradient maximisation").
//
// Gradient mass: half the L1 norm of d p / d s, which is alpha (1 - sum p^2) for p = softmax(alpha
// s). Its annealed average over n independent scores is
//
//   alpha (1 - E[e^(2 alpha s)] / (n E[e^(alpha s)]^2))
//
// which becomes exact as n grows with alpha fixed. Beyond the optimum the true mass falls more
// slowly than this, which even becomes negative; row_expectation.h has the average over rows.
//
// Domains: n in [1, 1e18], dim in [2, 65536], alpha in [0, 1e30]; functions throw Error otherwise.
// Optima have a relative error below 1e-11.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope::theory {

// Returns the gradient mass of standard normal scores, alpha (1 - e^(alpha^2) / n).
[[nodiscard]] double normal_gradient_mass(double n, double alpha);
// Returns the gradient mass if s is the cosine of two random directions in dim dimensions.
[[nodiscard]] double cosine_gradient_mass(double n, std::int64_t dim, double alpha);

// Returns the alpha of largest mass for normal scores, sqrt(W0(n sqrt(e) / 2) - 1/2) with Lambert's
// W0. It solves (1 + 2 alpha^2) e^(alpha^2) = n. 0 at n = 1.
[[nodiscard]] double normal_optimum(double n);
// Returns the same for cosine scores, by root finding in log space. 0 at n = 1.
[[nodiscard]] double cosine_optimum(double n, std::int64_t dim);

// Return the inverse: the n, in general not an integer, whose optimum is alpha. For normal scores
// it is (1 + 2 alpha^2) e^(alpha^2). alpha is at least 0, and at most the optimum of 1e18 keys.
[[nodiscard]] double normal_optimum_length(double alpha);
[[nodiscard]] double cosine_optimum_length(double alpha, std::int64_t dim);

// Fit of alpha = c f(n) by least squares, and its residuals.
struct Fit {
  double c;
  double rms_residual;      // root of the mean squared residual
  double largest_residual;  // in magnitude
};

// Fits c sqrt(ln n): c = 0.84 for the normal optimum over n = 40, 80, ... 20000. Each n is above 1,
// and there are as many alpha as n, at least one.
[[nodiscard]] Fit fit_sqrt_log(std::span<const double> n, std::span<const double> alpha);
// Fits c ln n: c = 3.49 for the cosine optimum at dim = 128 over the same range.
[[nodiscard]] Fit fit_log(std::span<const double> n, std::span<const double> alpha);

// Returns the c of the fit c ln n to cosine scores over n = 40, 80, ... 20000.
[[nodiscard]] double cosine_coefficient(std::int64_t dim);

// Return rules of the optimum itself, not its fit: tables at the given lengths, which must
// increase. The first is for logits of unit variance at 1/sqrt(d), the second for unit q and k.
[[nodiscard]] ScaleRule normal_optimum_rule(const std::vector<double>& lengths);
[[nodiscard]] ScaleRule cosine_optimum_rule(const std::vector<double>& lengths, std::int64_t dim);

// Returns the mean gradient mass of rows under a rule, lambda sqrt(d) (1 - E sum p^2), if scores
// q.k are normal with variance dim. For the first head. lambda sqrt(d) must be in [0, 60].
[[nodiscard]] double rule_gradient_mass(const ScaleRule& rule, std::int64_t n, std::int64_t dim);

}  // namespace isentrope::theory
