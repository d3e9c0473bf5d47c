#include "src/rules/cosine_optimum.h"

#include <cmath>

#include "src/rules/increasing_root.h"
#include "src/rules/sphere_moment.h"

namespace isentrope {

double cosine_optimum(double n, double d) {
  if (n <= 1) return 0;
  // With C = g(2 alpha) / (n g(alpha)^2), the derivative of alpha (1 - C) vanishes where
  //   ln C + ln(1 + 2 alpha (r(2 alpha) - r(alpha))) = 0,
  // which increases with alpha, from -ln n at 0. ln alpha is the variable: alpha spans 25 decades.
  const auto slope = [&](double log_alpha) {
    const double alpha = std::exp(log_alpha);
    const SphereMoment once = sphere_moment(d, alpha), twice = sphere_moment(d, 2 * alpha);
    const bool large = alpha > d;
    const double log_ratio =
        large ? twice.log_scaled - 2 * once.log_scaled : twice.log - 2 * once.log;
    const double rise = large ? once.gap - twice.gap : twice.mean - once.mean;
    return log_ratio - std::log(n) + std::log1p(2 * alpha * rise);
  };
  return std::exp(increasing_root(slope, std::log(d * std::log(n)) / 2));
}

double cosine_coefficient(double d) {
  double product = 0, square = 0;
  for (int n = 40; n <= 20000; n += 40) {
    const double x = std::log(n);
    product += x * cosine_optimum(n, d);
    square += x * x;
  }
  return product / square;
}

}  // namespace isentrope
