#include "tools/analysis/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>

namespace isentrope::analysis {
namespace {

constexpr double kOutside = 0.05;  // probability outside the interval
constexpr double kEqual = 1e-9;    // points or nats: rounding of equal differences

// Returns the indices of values that are not NaN, sorted by value.
std::vector<std::size_t> rising(const std::vector<double>& p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!std::isnan(p[i])) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return p[i]; });
  return order;
}

constexpr std::size_t kDraws = 2000, kFewestBlocks = 8;
constexpr std::size_t kBeyondEnds = kDraws / 40;  // draws beyond each end

}  // namespace

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double spread(const std::vector<double>& x) {
  const double center = mean(x);
  double squares = 0;
  for (const double value : x) squares += (value - center) * (value - center);
  return std::sqrt(squares / static_cast<double>(x.size() - 1));
}

Paired paired(const std::vector<double>& differences) {
  Paired result{.pairs = static_cast<std::int64_t>(differences.size())};
  const auto count = static_cast<double>(differences.size());
  if (differences.empty()) {
    result.undecided = "no seed is shared";
    return result;
  }
  result.mean = mean(differences);
  if (!std::isfinite(result.mean)) {
    result.undecided = "a number is not finite";
    return result;
  }
  if (differences.size() > 1) {
    result.sd = spread(differences);
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

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<double> adjusted = p;
  const std::vector<std::size_t> order = rising(p);
  double largest = 0;  // of smaller ones
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const auto left = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, left * p[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

std::vector<double> benjamini_hochberg(const std::vector<double>& p) {
  std::vector<double> adjusted = p;
  const std::vector<std::size_t> order = rising(p);
  double smallest = 1;  // of larger ones
  for (std::size_t rank = order.size(); rank-- > 0;) {
    const double share = static_cast<double>(order.size()) / static_cast<double>(rank + 1);
    smallest = std::min(smallest, share * p[order[rank]]);
    adjusted[order[rank]] = smallest;
  }
  return adjusted;
}

std::optional<TextInterval> text_interval(const std::vector<double>& differences,
                                          const std::vector<double>& predictions) {
  const std::size_t blocks = differences.size();
  if (blocks < kFewestBlocks || predictions.size() != blocks) return {};
  std::mt19937_64 random;  // NOLINT(cert-msc51-cpp): fixed seed, same draws each time
  std::vector<double> means;
  for (std::size_t draw = 0; draw < kDraws; ++draw) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::size_t block = random() % blocks;
      sum += differences[block];
      count += predictions[block];
    }
    means.push_back(sum / count);
  }
  std::ranges::sort(means);
  return TextInterval{means[kBeyondEnds - 1], means[kDraws - kBeyondEnds]};
}

}  // namespace isentrope::analysis
