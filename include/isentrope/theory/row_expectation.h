// Averages over rows of n independent random scores: log-sum-exp, entropy, collision probability.
//
// The laws of entropy.h and gradient.h average numerator and denominator of the softmax separately,
// which fails if few keys have most of a row's weight. Here the denominator is an integral, 1/Z =
// int e^(-t Z) dt, so that the n keys factorise. With phi(t) = E[e^(-t e^z)]:
//
//   E[ln Z]     = int (e^-t - phi^n) dt / t
//   E[sum p^2]  = n int t phi''(t) phi^(n-1) dt
//   E[sum z p]  = n int E[z e^z e^(-t e^z)] phi^(n-1) dt
//
// Both integrands are smooth functions that vanish at either end, for which the trapezoidal rule
// converges exponentially. The absolute error is below 1e-9; entropy is in [0, ln n] and collision
// in [1/n, 1] for every scale.
#pragma once

#include <cstdint>

namespace isentrope::theory {

// Averages over rows; lse and entropy are in nats.
struct RowExpectation {
  double lse, entropy, collision;
};

// Returns the averages for logits z = alpha s, s standard normal. n in [1, 1e18], alpha in [0, 60];
// throws Error otherwise.
[[nodiscard]] RowExpectation normal_row(double n, double alpha);

// Returns the averages for logits z = lambda q.k, keys uniform on the sphere of radius sqrt(dim),
// |q| = sqrt(dim). n in [1, 1e18], dim in [2, 1e7], lambda dim in [0, 400]; throws Error otherwise.
[[nodiscard]] RowExpectation sphere_row(double n, std::int64_t dim, double lambda);

}  // namespace isentrope::theory
