#include "src/rules/sphere_moment.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace isentrope {
namespace {

// Debye's expansion for large order v, uniform in z = a / v (DLMF 10.41.3, 10.41.9, 10.41.10):
//
//   I_v(v z) ~ e^(v eta) / (sqrt(2 pi v) (1 + z^2)^(1/4)) S(p),   S(p) = sum_k U_k(p) / v^k
//   p = 1 / sqrt(1 + z^2),  U_0 = 1
//   U_(k+1) = p^2 (1 - p^2) U_k' / 2 + int_0^p (1 - 5 t^2) U_k dt / 8
//
// From order 50 on, 12 terms leave less than 1e-16.
constexpr double kLeastOrder = 50;
constexpr std::size_t kTerms = 12;

// U_k(p) = p^k sum_j coefficient[k][j] p^(2 j), j = 0 ... k.
using Polynomials = std::array<std::array<double, kTerms + 1>, kTerms + 1>;

Polynomials debye_polynomials() {
  Polynomials u{};
  u[0][0] = 1;
  for (std::size_t k = 0; k < kTerms; ++k) {
    for (std::size_t j = 0; j <= k; ++j) {
      const double power = static_cast<double>(k + 2 * j);
      u[k + 1][j] += u[k][j] * (power / 2 + 1 / (8 * (power + 1)));
      u[k + 1][j + 1] -= u[k][j] * (power / 2 + 5 / (8 * (power + 3)));
    }
  }
  return u;
}

struct Series {
  double excess;  // S(p) - 1
  double slope;   // p S'(p)
};

Series debye_series(double v, double p) {
  static const Polynomials u = debye_polynomials();
  Series sum{0, 0};
  const double p2 = p * p;
  double factor = 1;  // (p / v)^k
  for (std::size_t k = 1; k <= kTerms; ++k) {
    factor *= p / v;
    double value = 0, slope = 0;  // of the polynomial in p^2, and p d/dp of p^k times it
    for (std::size_t j = k + 1; j-- > 0;) {
      value = value * p2 + u[k][j];
      slope = slope * p2 + u[k][j] * static_cast<double>(k + 2 * j);
    }
    sum.excess += factor * value;
    sum.slope += factor * slope;
  }
  return sum;
}

// Values that the recurrence in the order carries; q = r / a stays regular at a = 0.
struct State {
  double log, log_scaled, q, gap;
};

State debye(double v, double a) {
  const double z = a / v;
  const double root = std::hypot(1, z);
  const double p = 1 / root;
  const double t = z * (z / (root + 1));                      // root - 1
  const double shifted = z < 1 ? t - z : 1 / (root + z) - 1;  // root - 1 - z
  const Series here = debye_series(v, p);
  // Gamma(v + 1) is the same expansion at p = 1, since ln g(0) = 0: no Stirling series, no lgamma.
  const Series origin = debye_series(v, 1);
  const double slow = -std::log1p(t) / 2 + std::log1p(here.excess) - std::log1p(origin.excess);
  // (ln g)' = z / (1 + root) - z correction.
  const double correction = p * p / v * (0.5 + here.slope / (1 + here.excess));
  return {v * (t - std::log1p(t / 2)) + slow, v * (shifted - std::log1p(t / 2)) + slow,
          (1 / (1 + root) - correction) / v, (1 + 1 / (root + z)) / (1 + root) + z * correction};
}

// From order v + 1 to v: I_v = I_(v+2) + (2 v + 2) / a I_(v+1) (DLMF 10.29.1), stable downwards.
State lower_order(const State& above, double v, double a) {
  const double width = 2 * v + 2;
  const double q = 1 / (width + a * a * above.q);
  const double step = std::log1p(a * a * above.q / width);
  // 1 - r_v = (width / a - gap) / (width / a + r), and 1 - a q where that divides by a small a.
  const double gap = a < width ? 1 - a * q : (width / a - above.gap) / (width / a + 1 - above.gap);
  return {above.log + step, above.log_scaled + step, q, gap};
}

}  // namespace

SphereMoment sphere_moment(double d, double a) {
  const double order = d / 2 - 1;
  const int steps = order < kLeastOrder ? static_cast<int>(std::ceil(kLeastOrder - order)) : 0;
  State state = debye(order + steps, a);
  for (int i = steps - 1; i >= 0; --i) state = lower_order(state, order + i, a);
  const double r = a < d ? a * state.q : 1 - state.gap;
  return {state.log, state.log_scaled, r, state.gap};
}

}  // namespace isentrope
