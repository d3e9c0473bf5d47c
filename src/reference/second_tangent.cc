#include <cmath>
#include <vector>

#include "src/reference/tangent.h"

namespace isentrope::reference {
namespace {

// Second derivatives of one row along two tangents, t and u.
struct RowSecond {
  std::vector<double> log_p;  // of ln p_j
  double lse = 0, non_sink = 0;
};

// s''_j = q'_t.k'_u + q'_u.k'_t
double second_score(const Input& t, const Input& u, const Row& row, const Key& key) {
  double sum = 0;
  const auto add = [&](const View<const double, 4>& q, const View<const double, 4>& k) {
    if (!q || !k) return;
    for (std::int64_t c = 0; c < q.extents[3]; ++c)
      sum += q(row.batch, row.head, row.query, c) * k(row.batch, row.kv_head, key.index, c);
  };
  add(t.q, u.k);
  add(u.q, t.k);
  return sum;
}

// z''_j = slope_j x''_j + curvature_j x'_t x'_u, with x'' = lambda s'' + lambda'_t s'_u + lambda'_u
// s'_t. With c = (ln p_j)' along t and u, lse'' = sum_j p_j (z''_j + c_t c_u).
RowSecond second_of(const Input& t, const Input& u, const Row& row, const RowTangent& of_t,
                    const RowTangent& of_u) {
  RowSecond second;
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    const Key& key = row.keys[j];
    double scaled = row.before_cap * second_score(t, u, row, key);
    if (t.lambda) scaled += of_t.before_cap * of_u.scores[j].value;
    if (u.lambda) scaled += of_u.before_cap * of_t.scores[j].value;
    const double logit =
        key.slope * scaled + key.curvature * of_t.scaled[j].value * of_u.scaled[j].value;
    second.log_p.push_back(logit);
    second.lse += std::exp(key.log_p) * (logit + of_t.centred[j].value * of_u.centred[j].value);
  }
  for (double& logit : second.log_p) logit -= second.lse;
  // (ln w)' = r (lse' - sink') with r = 1 - w the sink's weight, and so r' = -w (ln w)'.
  second.non_sink = row.sink_weight * second.lse;
  if (row.sink_weight > 0)
    second.non_sink -=
        row.non_sink_weight * of_u.non_sink.value * of_t.non_sink.value / row.sink_weight;
  return second;
}

// Each statistic's tangent along t is sum_j p_j slope_j c_t: its factors change along u in turn.
StatisticFields<double> second_statistics(const Row& row, const RowTangent& of_t,
                                          const RowTangent& of_u, const RowSecond& second) {
  StatisticFields<double> result;
  if (row.keys.empty()) return result;
  const std::size_t largest = largest_key(row.keys);
  StatisticFields<double> d;  // 1 for the statistic in turn
  for_each_statistic(
      [&](const Statistic& statistic, double& of_one, double& sum) {
        if (!statistic.differentiable()) return;
        of_one = 1;
        for (std::size_t j = 0; j < row.keys.size() && statistic.name != "lse"; ++j) {
          const Key& key = row.keys[j];
          const double c = of_t.centred[j].value, of_second = of_u.centred[j].value;
          const double slope = statistics_slope(key, j == largest, row.statistics, d).value;
          const double change =
              statistics_slope_tangent(key, of_u.centred[j], row.statistics, of_u.statistics, d)
                  .value;
          sum += std::exp(key.log_p) * (slope * (second.log_p[j] + c * of_second) + change * c);
        }
        of_one = 0;
      },
      d, result);
  result.lse = second.lse;
  return result;
}

}  // namespace

// With e_j = w m_j p_j v_j and n_j = (ln w p_j)', o'' sums the second derivatives of e_j.
TangentFields attention_second_tangent(const Input& in, const AttentionOptions& options,
                                       const Input& t, const Input& u) {
  TangentFields result;
  for_each_row(in, options, [&](const Row& row) {
    const RowTangent of_t = tangent_of(in, t, row), of_u = tangent_of(in, u, row);
    const RowSecond second = second_of(t, u, row, of_t, of_u);
    for (std::int64_t c = 0; c < in.v.extents[3]; ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < row.keys.size(); ++j) {
        const Key& key = row.keys[j];
        const double n_t = of_t.centred[j].value + of_t.non_sink.value;
        const double n_u = of_u.centred[j].value + of_u.non_sink.value;
        double term = (second.log_p[j] + second.non_sink + n_t * n_u) *
                      in.v(row.batch, row.kv_head, key.index, c);
        if (t.v) term += n_u * t.v(row.batch, row.kv_head, key.index, c);
        if (u.v) term += n_t * u.v(row.batch, row.kv_head, key.index, c);
        sum += row.non_sink_weight * std::exp(key.log_p) * key.kept * term;
      }
      result.output.push_back(sum);
    }
    const StatisticFields<double> statistics = second_statistics(row, of_t, of_u, second);
    for_each_statistic(
        [](const Statistic& statistic, double value, std::vector<double>& values) {
          if (statistic.differentiable()) values.push_back(value);
        },
        statistics, result.statistics);
  });
  return result;
}

}  // namespace isentrope::reference
