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

bool is_near(const Row& row, const Key& a, const Key& b) {
  const auto error = [&](const Key& key) {
    const double factor = std::abs(row.before_cap * row.after_cap);
    return 1e-4 * (factor * key.score_magnitude + std::abs(key.logit));
  };
  return a.logit == b.logit || std::abs(a.logit - b.logit) < error(a) + error(b);
}

bool is_tie(const Input& in, const Row& row, const Key& a, const Key& b) {
  if (a.logit != b.logit) return false;
  if (row.before_cap == 0 || a.score_magnitude + b.score_magnitude == 0) return true;
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    if (in.k(row.batch, row.kv_head, a.index, c) != in.k(row.batch, row.kv_head, b.index, c))
      return false;
  }
  return true;
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

// The chain rule: the tangent of a statistic is sum_j dz_j z'_j, with dz_j / p_j its slope. As
// sum_j dz_j is 0, that of ln p_j serves as z'_j.
StatisticFields<Sum> statistics_tangent(const std::vector<Key>& keys, const RowStats& stats,
                                        const std::vector<Sum>& log_p) {
  StatisticFields<Sum> result;
  if (keys.empty()) return result;
  const std::size_t largest = largest_key(keys);
  StatisticFields<double> d;  // 1 for the statistic in turn
  for_each_statistic(
      [&](const Statistic& statistic, double& of_one, Sum& sum) {
        if (!statistic.differentiable() || statistic.name == "lse") return;
        of_one = 1;
        for (std::size_t j = 0; j < keys.size(); ++j) {
          const double p = std::exp(keys[j].log_p);
          const Sum slope = statistics_slope(keys[j], j == largest, stats, d);
          sum.add(p * slope.value * log_p[j].value, p * slope.magnitude * log_p[j].magnitude);
        }
        of_one = 0;
      },
      d, result);
  return result;
}

// With x = ln p_j and u = x + H, the tangent of the slope above is
//
//   -d_H u' + 2 d_C (p_j x' - C') + d_V (2 (u + 1) u' - V') - d_R R' - d_P P'
Sum statistics_slope_tangent(const Key& key, const Sum& log_p, const RowStats& stats,
                             const StatisticFields<Sum>& tangents,
                             const StatisticFields<double>& d) {
  const double p = std::exp(key.log_p);
  const double u = p == 0 ? 0 : key.log_p + stats.entropy;
  Sum du = log_p;
  du.add(tangents.entropy.value, tangents.entropy.magnitude);
  Sum sum;
  const auto add = [&](double factor, double size, const Sum& term) {
    sum.add(factor * term.value, std::abs(size) * term.magnitude);
  };
  add(-d.entropy, d.entropy, du);
  add(2 * d.collision * p, 2 * d.collision * p, log_p);
  add(-2 * d.collision, 2 * d.collision, tangents.collision);
  add(2 * d.variance * (u + 1), 2 * d.variance * (std::abs(u) + 2), du);
  add(-d.variance, d.variance, tangents.variance);
  add(-d.distance, d.distance, tangents.distance);
  add(-d.max_probability, d.max_probability, tangents.max_probability);
  return sum;
}

}  // namespace isentrope::reference
