#include <cmath>
#include <limits>

#include "isentrope/reference.h"
#include "src/reference/gradient_sums.h"
#include "src/reference/rows.h"
#include "src/reference/statistics.h"
#include "src/reference/tangent.h"

namespace isentrope::reference {
namespace {

Sum product(const Sum& a, const Sum& b) { return {a.value * b.value, a.magnitude * b.magnitude}; }
Sum times(double factor, const Sum& a) {
  return {factor * a.value, std::abs(factor) * a.magnitude};
}
void add(Sum& to, const Sum& a) { to.add(a.value, a.magnitude); }

// Gradients of the attention_backward() of a row and their tangents, for constant upstream
// gradients: dp_j = w m_j do.v_j, mean = w sum_j p_j dp_j, dz_j = p_j (dp_j - mean + slope_j).
struct LogitGradients {
  std::vector<Sum> dp, dz;
  Sum mean;
};

struct RowGradients {
  LogitGradients values, tangents;
};

// The tangent of a product is that of each factor times the others; that of p_j is p_j (ln p_j)'.
RowGradients gradients_of(const Input& in, const Input& tangent, const Row& row,
                          const RowTangent& of_row, const GradientInput& g) {
  LogitGradients values{.dp = weight_gradients(in.v, row, g.d_output), .dz = {}, .mean = {}};
  LogitGradients tangents;
  if (tangent.v) tangents.dp = weight_gradients(tangent.v, row, g.d_output);
  tangents.dp.resize(row.keys.size());
  const double w = row.non_sink_weight;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::exp(row.keys[j].log_p);
    add(tangents.dp[j], product(of_row.non_sink, values.dp[j]));
    Sum relative = of_row.non_sink;  // of ln (w p_j)
    add(relative, of_row.centred[j]);
    add(values.mean, times(w * p, values.dp[j]));
    add(tangents.mean, times(w * p, product(relative, values.dp[j])));
    add(tangents.mean, times(w * p, tangents.dp[j]));
  }
  StatisticFields<double> d;
  for_each_statistic([&](const Statistic&, const std::vector<double>& of_all,
                         double& one) { one = at_or_0(of_all, row.index); },
                     g.d_statistics, d);
  const std::size_t largest = largest_key(row.keys);
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const Key& key = row.keys[j];
    const double p = std::exp(key.log_p);
    Sum slope = statistics_slope(key, j == largest, row.statistics, d);
    add(slope, values.dp[j]);
    add(slope, times(-1, values.mean));
    Sum change =
        statistics_slope_tangent(key, of_row.centred[j], row.statistics, of_row.statistics, d);
    add(change, tangents.dp[j]);
    add(change, times(-1, tangents.mean));
    add(change, product(of_row.centred[j], slope));
    values.dz.push_back(times(p, slope));
    tangents.dz.push_back(times(p, change));
  }
  return {values, tangents};
}

// Adds the tangents of a key's terms in the sums of attention_backward(), with ds = dz times the
// soft-cap's slope:
//
//   dq = lambda sum_j ds_j k_j            dk_j = sum_i ds_ij lambda_i q_i
//   d_lambda = sum_j ds_j q.k_j           dv_j = sum_i w_i m_ij p_ij do_i
void add_key(const Input& in, const Input& tangent, const Row& row, std::size_t j,
             const RowTangent& of_row, const RowGradients& gradients, const GradientInput& g,
             const GradientSums& to) {
  const Key& key = row.keys[j];
  const Places at(in, row, key);
  const Sum ds = times(key.slope, gradients.values.dz[j]);
  Sum change = times(key.slope, gradients.tangents.dz[j]);
  add(change, times(key.curvature, product(gradients.values.dz[j], of_row.scaled[j])));
  const auto add_to = [](const Sums& sums, std::int64_t index, const Sum& term) {
    sums.add(index, term.value, term.magnitude);
  };
  const Sum score{key.score, key.score_magnitude};
  add_to(to.d_lambda, at.row, product(change, score));
  add_to(to.d_lambda, at.row, product(ds, of_row.scores[j]));
  Sum scaled = times(row.before_cap, change);  // tangent of lambda ds
  add(scaled, times(of_row.before_cap, ds));
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    add_to(to.dq, at.dq + c, times(in.k(row.batch, row.kv_head, key.index, c), scaled));
    add_to(to.dk, at.dk + c, times(in.q(row.batch, row.head, row.query, c), scaled));
    if (tangent.k) {
      const double k = row.before_cap * tangent.k(row.batch, row.kv_head, key.index, c);
      add_to(to.dq, at.dq + c, times(k, ds));
    }
    if (tangent.q) {
      const double q = row.before_cap * tangent.q(row.batch, row.head, row.query, c);
      add_to(to.dk, at.dk + c, times(q, ds));
    }
  }
  Sum relative = of_row.non_sink;
  add(relative, of_row.centred[j]);
  const double weight = row.non_sink_weight * std::exp(key.log_p) * key.kept;
  const std::int64_t value_dim = in.v.extents[3];
  for (std::int64_t c = 0; c < value_dim; ++c) {
    const double d = at_or_0(g.d_output, static_cast<std::size_t>(at.row * value_dim + c));
    add_to(to.dv, at.dv + c, times(weight * d, relative));
  }
}

// Adds the tangent of -r sum_j p_j dp_j = -r o.do, r the sink's weight, whose tangent is -w' = -w
// times that of ln w.
void add_sink(const Row& row, const RowTangent& of_row, const RowGradients& gradients,
              const GradientSums& to) {
  const double r = row.sink_weight, w = row.non_sink_weight;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::exp(row.keys[j].log_p);
    const Sum& dp = gradients.values.dp[j];
    Sum sum = times(-r * p, gradients.tangents.dp[j]);
    add(sum, times(-r * p, product(of_row.centred[j], dp)));
    // r' = -w' and (ln w)' = r (lse' - sink'): with r = 0 both are 0.
    add(sum, times(w * p, product(of_row.non_sink, dp)));
    to.d_sinks.add(row.head, sum.value, sum.magnitude);
  }
}

// Adds what the gradients change by, in magnitude, if that of a key's logit changes by dz and its
// tangent by of_dz.
void add_change(const Input& in, const Input& tangent, const Row& row, std::size_t j,
                const RowTangent& of_row, double dz, double of_dz, GradientFields& to) {
  const Key& key = row.keys[j];
  const Places at(in, row, key);
  const double ds = std::abs(key.slope) * dz;
  const double of_ds =
      std::abs(key.slope) * of_dz + std::abs(key.curvature) * dz * of_row.scaled[j].magnitude;
  const double scaled = std::abs(row.before_cap) * of_ds + std::abs(of_row.before_cap) * ds;
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    const auto number = [&](const View<const double, 4>& view, std::int64_t head,
                            std::int64_t index) {
      return view ? std::abs(view(row.batch, head, index, c)) : 0;
    };
    const double first = std::abs(row.before_cap) * ds;
    element(to.dq, at.dq + c) += scaled * number(in.k, row.kv_head, key.index) +
                                 first * number(tangent.k, row.kv_head, key.index);
    element(to.dk, at.dk + c) +=
        scaled * number(in.q, row.head, row.query) + first * number(tangent.q, row.head, row.query);
  }
  if (!to.d_bias.empty()) element(to.d_bias, at.d_bias) += of_dz * std::abs(row.on_bias);
  element(to.d_lambda, at.row) +=
      of_ds * std::abs(key.score) + ds * std::abs(of_row.scores[j].value);
}

// Adds the terms that depend on which of nearly equal keys is the largest: p_j d_max of each such
// key and its tangent, and p_j d_max times the change of max_probability's tangent of every key.
void add_doubts(const Input& in, const Input& tangent, const Row& row, const RowTangent& of_row,
                double d_max, GradientFields& to) {
  const std::size_t largest = largest_key(row.keys);
  double change = 0;
  std::vector<bool> is_doubtful(row.keys.size());
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    if (j == largest || !is_near(row, row.keys[j], row.keys[largest])) continue;
    is_doubtful[j] = is_doubtful[largest] = true;
    change = std::fmax(change, std::abs(of_row.centred[j].value - of_row.centred[largest].value));
  }
  if (!is_doubtful[largest]) return;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::abs(d_max) * std::exp(row.keys[j].log_p), dz = is_doubtful[j] ? p : 0;
    const double of_dz =
        dz * of_row.centred[j].magnitude + p * row.statistics.max_probability * change;
    add_change(in, tangent, row, j, of_row, dz, of_dz, to);
  }
}

// Adds the changes of the gradients but dv if do.output and do.output' change by 1 each.
void add_of_mean(const Input& in, const Input& tangent, const Row& row, const RowTangent& of_row,
                 GradientFields& to) {
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const double p = std::exp(row.keys[j].log_p);
    const double of_dz = p * (1 + of_row.centred[j].magnitude + of_row.non_sink.magnitude);
    add_change(in, tangent, row, j, of_row, p, of_dz, to);
    element(to.d_sinks, row.head) += of_dz * row.sink_weight;
  }
}

}  // namespace

Gradients attention_second_order(const Input& in, const AttentionOptions& options,
                                 const Input& tangent, const GradientInput& g) {
  const bool has_bias = in.bias || options.bias;
  Gradients r;
  const GradientSums sums(in, has_bias, r);
  for_each_row(in, options, [&](const Row& row) {
    const RowTangent of_row = tangent_of(in, tangent, row);
    const RowGradients gradients = gradients_of(in, tangent, row, of_row, g);
    for (std::size_t j = 0; j < row.keys.size(); ++j) {
      add_key(in, tangent, row, j, of_row, gradients, g, sums);
      if (std::exp(row.keys[j].log_p) < kLeastWeight)
        add_change(in, tangent, row, j, of_row, gradients.values.dz[j].magnitude,
                   gradients.tangents.dz[j].magnitude, r.underflowing);
      if (!has_bias) continue;
      const Sum of_bias = times(row.on_bias, gradients.tangents.dz[j]);
      sums.d_bias.add(Places(in, row, row.keys[j]).d_bias, of_bias.value, of_bias.magnitude);
    }
    // If all logits are -inf, the sink has all the weight, and its gradient leaves out the row.
    if (row.statistics.lse != -std::numeric_limits<double>::infinity()) {
      add_sink(row, of_row, gradients, sums);
      add_of_mean(in, tangent, row, of_row, r.of_mean);
    }
    const double d_max = at_or_0(g.d_statistics.max_probability, row.index);
    if (d_max != 0 && !row.keys.empty()) add_doubts(in, tangent, row, of_row, d_max, r.nearly_tied);
  });
  return r;
}

}  // namespace isentrope::reference
