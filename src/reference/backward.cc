#include <cmath>
#include <cstdlib>
#include <limits>

#include "isentrope/reference.h"
#include "src/reference/gradient_sums.h"
#include "src/reference/rows.h"
#include "src/reference/statistics.h"

namespace isentrope::reference {
namespace {

// Returns dz_j = p_j [ dp_j - w sum_i p_i dp_i + gradients of statistics ].
std::vector<Sum> logit_gradients(const Row& row, const std::vector<Sum>& dp,
                                 const GradientInput& g) {
  Sum mean;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::exp(row.keys[j].log_p);
    mean.add(row.non_sink_weight * p * dp[j].value, row.non_sink_weight * p * dp[j].magnitude);
  }
  StatisticFields<double> d;
  for_each_statistic([&](const Statistic&, const std::vector<double>& of_all,
                         double& of_row) { of_row = at_or_0(of_all, row.index); },
                     g.d_statistics, d);
  const std::size_t largest = largest_key(row.keys);
  std::vector<Sum> result;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::exp(row.keys[j].log_p);
    const Sum slope = statistics_slope(row.keys[j], j == largest, row.statistics, d);
    result.push_back({p * (dp[j].value - mean.value + slope.value),
                      p * (dp[j].magnitude + mean.magnitude + slope.magnitude)});
  }
  return result;
}

// Adds what the gradients change by, in magnitude, if that of a key's logit changes by `of_logit`.
void add_change(const Input& in, const Row& row, const Key& key, double of_logit,
                GradientFields& to) {
  const Places at(in, row, key);
  const double of_score = of_logit * std::abs(key.slope);
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    element(to.dq, at.dq + c) +=
        of_score * std::abs(row.before_cap * in.k(row.batch, row.kv_head, key.index, c));
    element(to.dk, at.dk + c) +=
        of_score * std::abs(row.before_cap * in.q(row.batch, row.head, row.query, c));
  }
  if (!to.d_bias.empty()) element(to.d_bias, at.d_bias) += of_logit * std::abs(row.on_bias);
  element(to.d_lambda, at.row) += of_score * std::abs(key.score);
}

// Keys that tie with the largest, exactly or nearly: a kernel may choose any of them.
void add_doubts(const Input& in, const Row& row, double d_max, Gradients& r) {
  const std::size_t largest = largest_key(row.keys);
  bool tied = false, nearly_tied = false;
  const auto add = [&](std::size_t j, GradientFields& to) {
    add_change(in, row, row.keys[j], std::exp(row.keys[j].log_p) * std::abs(d_max), to);
  };
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    if (j == largest || !is_near(row, row.keys[j], row.keys[largest])) continue;
    const bool equal = is_tie(in, row, row.keys[j], row.keys[largest]);
    add(j, equal ? r.tied : r.nearly_tied);
    (equal ? tied : nearly_tied) = true;
  }
  if (tied) add(largest, r.tied);
  if (nearly_tied) add(largest, r.nearly_tied);
}

}  // namespace

std::vector<Sum> weight_gradients(const View<const double, 4>& v, const Row& row,
                                  const std::vector<double>& d_output) {
  const std::int64_t value_dim = v.extents[3];
  std::vector<Sum> result;
  for (const Key& key : row.keys) {
    Sum dp;
    for (std::int64_t c = 0; c < value_dim; ++c) {
      const std::size_t column =
          row.index * static_cast<std::size_t>(value_dim) + static_cast<std::size_t>(c);
      const double product = row.non_sink_weight * key.kept * at_or_0(d_output, column) *
                             v(row.batch, row.kv_head, key.index, c);
      dp.add(product, std::abs(product));
    }
    result.push_back(dp);
  }
  return result;
}

// dq = lambda sum_j ds_j k_j, dk_j = sum_i ds_ij lambda_i q_i, dv_j = sum_i w_i m_ij p_ij do_i,
// with ds = dz times the soft-cap's slope.
Gradients attention_backward(const Input& in, const AttentionOptions& options,
                             const GradientInput& g) {
  const std::int64_t dim = in.q.extents[3], value_dim = in.v.extents[3];
  const bool has_bias = in.bias || options.bias;
  Gradients r;
  const GradientSums sums(in, has_bias, r);
  for_each_row(in, options, [&](const Row& row) {
    const std::vector<Sum> dp = weight_gradients(in.v, row, g.d_output);
    const std::vector<Sum> dz = logit_gradients(row, dp, g);
    for (std::size_t j = 0; j < row.keys.size(); ++j) {
      const Key& key = row.keys[j];
      const Places at(in, row, key);
      const double p = std::exp(key.log_p);
      const double ds = dz[j].value * key.slope,
                   ds_magnitude = dz[j].magnitude * std::abs(key.slope);
      if (has_bias) {
        sums.d_bias.add(at.d_bias, row.on_bias * dz[j].value,
                        std::abs(row.on_bias) * dz[j].magnitude);
      }
      sums.d_lambda.add(at.row, ds * key.score, ds_magnitude * key.score_magnitude);
      add_change(in, row, key, p, r.of_mean);
      if (p < kLeastWeight) add_change(in, row, key, dz[j].magnitude, r.underflowing);
      element(r.of_logits.d_lambda, at.row) += std::abs(key.score);
      // If all logits are -inf, the sink has all the weight.
      const bool sink_has_all = row.statistics.lse == -std::numeric_limits<double>::infinity();
      if (!sink_has_all) {
        sums.d_sinks.add(row.head, -row.sink_weight * p * dp[j].value,
                         row.sink_weight * p * dp[j].magnitude);
        element(r.of_mean.d_sinks, row.head) += row.sink_weight * p;
      }
      for (std::int64_t c = 0; c < dim; ++c) {
        const double q = row.before_cap * in.q(row.batch, row.head, row.query, c);
        const double k = row.before_cap * in.k(row.batch, row.kv_head, key.index, c);
        sums.dq.add(at.dq + c, ds * k, ds_magnitude * std::abs(k));
        sums.dk.add(at.dk + c, ds * q, ds_magnitude * std::abs(q));
        element(r.of_logits.dq, at.dq + c) += std::abs(k);
        element(r.of_logits.dk, at.dk + c) += std::abs(q);
      }
      for (std::int64_t c = 0; c < value_dim; ++c) {
        const double d = row.non_sink_weight * p * key.kept *
                         at_or_0(g.d_output, static_cast<std::size_t>(at.row * value_dim + c));
        sums.dv.add(at.dv + c, d, std::abs(d));
      }
    }
    const double d_max = at_or_0(g.d_statistics.max_probability, row.index);
    if (d_max != 0) add_doubts(in, row, d_max, r);
  });
  return r;
}

}  // namespace isentrope::reference
