#include "src/reference/tangent.h"

#include <cmath>

namespace isentrope::reference {
namespace {

// Returns s'_j = q'.k_j + q.k'_j.
Sum score_tangent(const Input& in, const Input& tangent, const Row& row, const Key& key) {
  Sum sum;
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    const auto add = [&](const View<const double, 4>& q, const View<const double, 4>& k) {
      if (!q || !k) return;
      const double product =
          q(row.batch, row.head, row.query, c) * k(row.batch, row.kv_head, key.index, c);
      sum.add(product, std::abs(product));
    };
    add(tangent.q, in.k);
    add(in.q, tangent.k);
  }
  return sum;
}

// Returns x'_j = lambda s'_j + lambda' s_j. An absent lambda' adds nothing to an infinite score.
Sum scaled_tangent(const Input& tangent, const Row& row, const Key& key, const Sum& score,
                   double before_cap) {
  Sum sum;
  sum.add(row.before_cap * score.value, std::abs(row.before_cap) * score.magnitude);
  if (tangent.lambda) sum.add(before_cap * key.score, std::abs(before_cap) * key.score_magnitude);
  return sum;
}

// Returns z'_j = slope_j x'_j + bias'_j times the bias's factor.
Sum logit_tangent(const Input& tangent, const Row& row, const Key& key, const Sum& scaled) {
  Sum sum{key.slope * scaled.value, std::abs(key.slope) * scaled.magnitude};
  if (tangent.bias) {
    const double bias = row.on_bias * tangent.bias(row.batch, row.head, row.query, key.index);
    sum.add(bias, std::abs(bias));
  }
  return sum;
}

// Returns the largest change of max_probability's tangent among keys nearly as large as the
// largest.
double doubt_of(const Input& in, const Row& row, const RowTangent& of_row) {
  double doubt = 0;
  if (row.keys.empty()) return doubt;
  const std::size_t largest = largest_key(row.keys);
  for (std::size_t j = 0; j < row.keys.size(); ++j) {
    if (is_tie(in, row, row.keys[j], row.keys[largest]) ||
        !is_near(row, row.keys[j], row.keys[largest]))
      continue;
    const double change = of_row.centred[j].value - of_row.centred[largest].value;
    doubt = std::fmax(doubt, row.statistics.max_probability * std::abs(change));
  }
  return doubt;
}

}  // namespace

RowTangent tangent_of(const Input& in, const Input& tangent, const Row& row) {
  RowTangent result;
  if (row.keys.empty()) return result;
  if (tangent.lambda) result.before_cap = tangent.lambda(row.batch, row.head, row.query);
  for (const Key& key : row.keys) {
    result.scores.push_back(score_tangent(in, tangent, row, key));
    result.scaled.push_back(
        scaled_tangent(tangent, row, key, result.scores.back(), result.before_cap));
    result.centred.push_back(logit_tangent(tangent, row, key, result.scaled.back()));
    const double p = std::exp(key.log_p);
    result.lse.add(p * result.centred.back().value, p * result.centred.back().magnitude);
  }
  for (Sum& logit : result.centred) logit.add(-result.lse.value, result.lse.magnitude);
  // With w = 1 / (1 + e^(sink - lse)), w' = w (1 - w) (lse' - sink').
  const double sink = tangent.sinks ? tangent.sinks(row.head) : 0;
  result.non_sink.add(row.sink_weight * (result.lse.value - sink),
                      row.sink_weight * (result.lse.magnitude + std::abs(sink)));
  result.statistics = statistics_tangent(row.keys, row.statistics, result.centred);
  result.statistics.lse = result.lse;
  return result;
}

// o' = w sum_j m_j p_j (v'_j + (z'_j - lse' + w' / w) v_j)
Tangents attention_tangent(const Input& in, const AttentionOptions& options, const Input& tangent) {
  const std::int64_t value_dim = in.v.extents[3];
  Tangents result;
  for_each_row(in, options, [&](const Row& row) {
    const RowTangent of_row = tangent_of(in, tangent, row);
    std::vector<Sum> output(static_cast<std::size_t>(value_dim));
    for (std::size_t j = 0; j < row.keys.size(); ++j) {
      const Key& key = row.keys[j];
      const double weight = row.non_sink_weight * std::exp(key.log_p) * key.kept;
      Sum factor = of_row.centred[j];
      factor.add(of_row.non_sink.value, of_row.non_sink.magnitude);
      for (std::int64_t c = 0; c < value_dim; ++c) {
        Sum& sum = output[static_cast<std::size_t>(c)];
        const double v = weight * in.v(row.batch, row.kv_head, key.index, c);
        sum.add(factor.value * v, factor.magnitude * std::abs(v));
        if (!tangent.v) continue;
        const double dv = weight * tangent.v(row.batch, row.kv_head, key.index, c);
        sum.add(dv, std::abs(dv));
      }
    }
    for (const Sum& sum : output) {
      result.output.push_back(sum.value);
      result.magnitude.output.push_back(sum.magnitude);
    }
    for_each_statistic(
        [](const Statistic& statistic, const Sum& sum, std::vector<double>& values,
           std::vector<double>& magnitudes) {
          if (!statistic.differentiable()) return;
          values.push_back(sum.value);
          magnitudes.push_back(sum.magnitude);
        },
        of_row.statistics, result.statistics, result.magnitude.statistics);
    result.nearly_tied.push_back(doubt_of(in, row, of_row));
  });
  return result;
}

}  // namespace isentrope::reference
