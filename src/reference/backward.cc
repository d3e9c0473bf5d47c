#include <cmath>
#include <cstdlib>
#include <limits>

#include "isentrope/reference.h"
#include "src/reference/rows.h"

namespace isentrope::reference {
namespace {

double at(const std::vector<double>& values, std::size_t index) {
  return values.empty() ? 0 : values[index];
}

// A sum, and the same sum over magnitudes.
struct Sum {
  double value = 0, magnitude = 0;

  void add(double term, double size) {
    value += term;
    magnitude += size;
  }
};

// dp_j = w m_j do.v_j for each key that a row sees, w the non-sink weight, m_j dropout's factor.
std::vector<Sum> weight_gradients(const Input& in, const Row& row,
                                  const std::vector<double>& d_output) {
  const std::int64_t value_dim = in.v.extents[3];
  std::vector<Sum> result;
  for (const Key& key : row.keys) {
    Sum dp;
    for (std::int64_t c = 0; c < value_dim; ++c) {
      const std::size_t column =
          row.index * static_cast<std::size_t>(value_dim) + static_cast<std::size_t>(c);
      const double product = row.non_sink_weight * key.kept * at(d_output, column) *
                             in.v(row.batch, row.kv_head, key.index, c);
      dp.add(product, std::abs(product));
    }
    result.push_back(dp);
  }
  return result;
}

// The first of those with the largest logit.
std::size_t largest_key(const std::vector<Key>& keys) {
  std::size_t largest = 0;
  for (std::size_t j = 1; j < keys.size(); ++j) {
    if (keys[j].logit > keys[largest].logit) largest = j;
  }
  return largest;
}

// Whether rounding in f32 may decide which of two keys is the largest, so that a gradient of P may
// be of either: no budget can be told from the magnitudes then. Equal logits are equal in f32.
constexpr double kUndecided = 1e30;
bool may_be_largest(const Row& row, std::size_t j, std::size_t largest) {
  const auto error = [&](const Key& key) {
    const double factor = std::abs(row.before_cap * row.after_cap);
    return 1e-4 * (factor * key.score_magnitude + std::abs(key.logit));
  };
  const auto is_near = [&](std::size_t a, std::size_t b) {
    const Key &x = row.keys[a], &y = row.keys[b];
    return x.logit != y.logit && std::abs(x.logit - y.logit) < error(x) + error(y);
  };
  if (j != largest) return is_near(j, largest);
  for (std::size_t other = 0; other < row.keys.size(); ++other)
    if (is_near(other, largest)) return true;
  return false;
}

// With x = ln p_j, u = x + H and D = w sum_i p_i dp_i, the chain rule through each result gives
//
//   dz_j = p_j [ dp_j - D + d_lse - d_H u + 2 d_C (p_j - C) + d_V (u^2 + 2u - V) + d_R (|i - j| - R)
//                + d_P ((j is the largest key) - P) ]
//
// R the distance, P the mass of the largest key, the first of several.
std::vector<Sum> logit_gradients(const Row& row, const std::vector<Sum>& dp,
                                 const GradientInput& g) {
  const RowStats& stats = row.statistics;
  Sum mean;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::exp(row.keys[j].log_p);
    mean.add(row.non_sink_weight * p * dp[j].value, row.non_sink_weight * p * dp[j].magnitude);
  }
  const auto& d = g.d_statistics;
  const double d_lse = at(d.lse, row.index), d_entropy = at(d.entropy, row.index);
  const double d_collision = at(d.collision, row.index), d_variance = at(d.variance, row.index);
  const double d_distance = at(d.distance, row.index), d_max = at(d.max_probability, row.index);
  const std::size_t largest = largest_key(row.keys);
  std::vector<Sum> result;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double x = row.keys[j].log_p, p = std::exp(x);
    const double u = p == 0 ? 0 : x + stats.entropy;  // p u vanishes, and x may be -inf
    const double value = dp[j].value - mean.value + d_lse - d_entropy * u +
                         2 * d_collision * (p - stats.collision) +
                         d_variance * (u * u + 2 * u - stats.variance) +
                         d_distance * (row.keys[j].distance - stats.distance) +
                         d_max * ((j == largest ? 1 : 0) - stats.max_probability);
    const double magnitude = dp[j].magnitude + mean.magnitude + std::abs(d_lse) +
                             std::abs(d_entropy) * (std::abs(u) + 1) +
                             2 * std::abs(d_collision) * (p + stats.collision) +
                             std::abs(d_variance) * (u * u + 4 * std::abs(u) + stats.variance + 2) +
                             std::abs(d_distance) * (row.keys[j].distance + stats.distance + 1) +
                             std::abs(d_max) * ((j == largest ? 1 : 0) + stats.max_probability);
    result.push_back({p * value, p * magnitude});
    if (d_max != 0 && may_be_largest(row, j, largest)) result.back().magnitude = kUndecided;
  }
  return result;
}

// The results' flat arrays, with their magnitudes beside them.
class Sums {
 public:
  Sums(std::vector<double>& values, std::vector<double>& magnitudes, std::int64_t count)
      : values_(values), magnitudes_(magnitudes) {
    values.assign(static_cast<std::size_t>(count), 0);
    magnitudes.assign(static_cast<std::size_t>(count), 0);
  }

  void add(std::int64_t index, double value, double magnitude) const {
    values_[static_cast<std::size_t>(index)] += value;
    magnitudes_[static_cast<std::size_t>(index)] += magnitude;
  }

 private:
  std::vector<double>& values_;
  std::vector<double>& magnitudes_;
};

}  // namespace

// dq = lambda sum_j ds_j k_j, dk_j = sum_i ds_ij lambda_i q_i, dv_j = sum_i w_i m_ij p_ij do_i,
// with ds = dz times the soft-cap's slope.
Gradients attention_backward(const Input& in, const AttentionOptions& options,
                             const GradientInput& g) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], keys = in.k.extents[2],
                     value_dim = in.v.extents[3];
  Gradients r;
  const Sums dq(r.dq, r.dq_magnitude, batches * heads * queries * dim);
  const Sums dk(r.dk, r.dk_magnitude, batches * kv_heads * keys * dim);
  const Sums dv(r.dv, r.dv_magnitude, batches * kv_heads * keys * value_dim);
  const bool has_bias = in.bias || options.bias;
  const Sums d_bias(r.d_bias, r.d_bias_magnitude, has_bias ? batches * heads * queries * keys : 0);
  const Sums d_lambda(r.d_lambda, r.d_lambda_magnitude, batches * heads * queries);
  const Sums d_sinks(r.d_sinks, r.d_sinks_magnitude, heads);
  for_each_row(in, options, [&](const Row& row) {
    const std::vector<Sum> dp = weight_gradients(in, row, g.d_output);
    const std::vector<Sum> dz = logit_gradients(row, dp, g);
    const auto index = static_cast<std::int64_t>(row.index);
    for (std::size_t j = 0; j < row.keys.size(); ++j) {
      const Key& key = row.keys[j];
      const double p = std::exp(key.log_p);
      const std::int64_t key_row = (row.batch * kv_heads + row.kv_head) * keys + key.index;
      const double ds = dz[j].value * key.slope,
                   ds_magnitude = dz[j].magnitude * std::abs(key.slope);
      if (has_bias)
        d_bias.add(index * keys + key.index, row.on_bias * dz[j].value,
                   std::abs(row.on_bias) * dz[j].magnitude);
      d_lambda.add(index, ds * key.score, ds_magnitude * key.score_magnitude);
      // Logits that are all -inf leave the sink no key to share with.
      const bool alone = row.statistics.lse == -std::numeric_limits<double>::infinity();
      if (!alone)
        d_sinks.add(row.head, -row.sink_weight * p * dp[j].value,
                    row.sink_weight * p * dp[j].magnitude);
      for (std::int64_t c = 0; c < dim; ++c) {
        const double q = row.before_cap * in.q(row.batch, row.head, row.query, c);
        const double k = row.before_cap * in.k(row.batch, row.kv_head, key.index, c);
        dq.add(index * dim + c, ds * k, ds_magnitude * std::abs(k));
        dk.add(key_row * dim + c, ds * q, ds_magnitude * std::abs(q));
      }
      for (std::int64_t c = 0; c < value_dim; ++c) {
        const double d = row.non_sink_weight * p * key.kept *
                         at(g.d_output, static_cast<std::size_t>(index * value_dim + c));
        dv.add(key_row * value_dim + c, d, std::abs(d));
      }
    }
  });
  return r;
}

}  // namespace isentrope::reference
