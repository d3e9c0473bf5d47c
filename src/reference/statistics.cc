#include "src/reference/statistics.h"

#include <cmath>
#include <limits>

namespace isentrope::reference {

// Computed from definitions: no code is shared with the kernels' merged sums, so no mistake is.
RowStats statistics_of(std::vector<Key>& keys) {
  RowStats stats;
  if (keys.empty()) return stats;
  stats.support = static_cast<std::int64_t>(keys.size());
  for (const Key& key : keys) {
    if (std::isnan(key.logit) || key.logit > stats.max_logit) stats.max_logit = key.logit;
    if (std::isnan(key.logit)) break;
  }
  // Measured from the largest logit: no weight exceeds 1, and logits near 1e9 lose no digits.
  double sum = 0;
  for (const Key& key : keys) {
    if (key.logit != -std::numeric_limits<double>::infinity())
      sum += std::exp(key.logit - stats.max_logit);
  }
  stats.lse = stats.max_logit + std::log(sum);
  for (Key& key : keys) key.log_p = (key.logit - stats.max_logit) - std::log(sum);
  double mean = 0;  // of z - max: ln p would lose digits if logits are nearly equal
  for (const Key& key : keys) {
    const double p = std::exp(key.log_p);
    stats.collision += p * p;
    stats.distance += p * key.distance;
    if (p == 0) continue;  // its logit may be -inf
    stats.entropy -= p * key.log_p;
    mean += p * (key.logit - stats.max_logit);
  }
  for (const Key& key : keys) {
    const double p = std::exp(key.log_p);
    if (std::isnan(p) || p > stats.max_probability) stats.max_probability = p;
    if (std::isnan(p)) break;
  }
  for (const Key& key : keys) {
    const double p = std::exp(key.log_p), deviation = (key.logit - stats.max_logit) - mean;
    if (p != 0) stats.variance += p * deviation * deviation;
  }
  if (std::isnan(sum)) stats.max_logit = sum;  // a logit of +inf makes the row NaN
  return stats;
}

std::size_t largest_key(const std::vector<Key>& keys) {
  std::size_t largest = 0;
  for (std::size_t j = 1; j < keys.size(); ++j) {
    if (keys[j].logit > keys[largest].logit) largest = j;
  }
  return largest;
}

// Returns the gradient of the statistics with respect to the logit. With x = ln p_j, u = x + H:
//
//   d_lse - d_H u + 2 d_C (p_j - C) + d_V (u^2 + 2u - V) + d_R (|i - j| - R)
//         + d_P ((j is the largest key) - P)
//
// R is the distance and P the mass of the largest key, the first of several.
Sum statistics_slope(const Key& key, bool is_largest, const RowStats& stats,
                     const StatisticFields<double>& d) {
  const double x = key.log_p, p = std::exp(x), largest = is_largest ? 1 : 0;
  const double u = p == 0 ? 0 : x + stats.entropy;  // p u is 0, and x may be -inf
  Sum sum;
  sum.add(d.lse, std::abs(d.lse));
  sum.add(-d.entropy * u, std::abs(d.entropy) * (std::abs(u) + 1));
  sum.add(2 * d.collision * (p - stats.collision),
          2 * std::abs(d.collision) * (p + stats.collision));
  sum.add(d.variance * (u * u + 2 * u - stats.variance),
          std::abs(d.variance) * (u * u + 4 * std::abs(u) + stats.variance + 2));
  sum.add(d.distance * (key.distance - stats.distance),
          std::abs(d.distance) * (key.distance + stats.distance + 1));
  sum.add(d.max_probability * (largest - stats.max_probability),
          std::abs(d.max_probability) * (largest + stats.max_probability));
  return sum;
}

}  // namespace isentrope::reference
