#include "tools/analysis/paired.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace isentrope::analysis {
namespace {

constexpr double kOutside = 0.05;  // probability outside the interval
constexpr double kEqual = 1e-9;    // points or nats: rounding of equal differences

}  // namespace

Paired paired(const std::vector<double>& differences) {
  Paired result{.pairs = static_cast<std::int64_t>(differences.size())};
  const auto count = static_cast<double>(differences.size());
  if (differences.empty()) {
    result.undecided = "no seed is shared";
    return result;
  }
  result.mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  if (!std::isfinite(result.mean)) {
    result.undecided = "a number is not finite";
    return result;
  }
  if (differences.size() > 1) {
    double squares = 0;
    for (const double x : differences) squares += (x - result.mean) * (x - result.mean);
    result.sd = std::sqrt(squares / (count - 1));
    result.se = result.sd / std::sqrt(count);
  }
  const auto [least, most] = std::ranges::minmax(differences);
  if (differences.size() < 3) {
    result.undecided = "fewer than 3 seeds";
  } else if (most - least <= kEqual) {
    result.undecided = "all differences are equal";
  } else {
    const boost::math::students_t t(static_cast<double>(result.df()));
    const double reach = boost::math::quantile(boost::math::complement(t, kOutside / 2));
    result.low = result.mean - reach * result.se;
    result.high = result.mean + reach * result.se;
    result.p = 2 * boost::math::cdf(boost::math::complement(t, std::abs(result.mean) / result.se));
  }
  return result;
}

}  // namespace isentrope::analysis
