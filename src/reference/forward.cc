#include <cmath>
#include <limits>

#include "isentrope/reference.h"
#include "src/reference/rows.h"

namespace isentrope::reference {

Result attention_forward(const Input& in, const AttentionOptions& options) {
  const std::int64_t value_dim = in.v.extents[3];
  Result result;
  for_each_row(in, options, [&](const Row& row) {
    double logit_magnitude = 0, slope = 0, below_max = 0, distance_slope = 0;
    std::vector<double> output(static_cast<std::size_t>(value_dim)), magnitude(output.size()),
        sum(output.size());
    for (const Key& key : row.keys) {
      const double p = std::exp(key.log_p);
      for (std::int64_t c = 0; c < value_dim; ++c) {
        const double v =
            row.non_sink_weight * key.kept * in.v(row.sequence, row.kv_head, key.index, c);
        output[static_cast<std::size_t>(c)] += p * v;
        magnitude[static_cast<std::size_t>(c)] += p * std::abs(v);
        sum[static_cast<std::size_t>(c)] += std::abs(v);
      }
      // A logit of -inf has no error, and the weight 0.
      if (key.logit == -std::numeric_limits<double>::infinity()) continue;
      const double terms =
          std::abs(row.after_cap * row.before_cap) * key.score_magnitude + std::abs(key.logit);
      logit_magnitude = std::fmax(logit_magnitude, terms);
      slope += p * std::abs(key.log_p + row.statistics.entropy);
      below_max += p * (row.statistics.max_logit - key.logit);
      distance_slope += p * std::abs(key.distance - row.statistics.distance);
    }
    result.output.insert(result.output.end(), output.begin(), output.end());
    result.value_magnitude.insert(result.value_magnitude.end(), magnitude.begin(), magnitude.end());
    result.value_sum.insert(result.value_sum.end(), sum.begin(), sum.end());
    result.statistics.push_back(row.statistics);
    result.lambda.push_back(row.before_cap * row.after_cap);
    result.logit_magnitude.push_back(logit_magnitude);
    result.entropy_slope.push_back(slope);
    result.mean_below_max.push_back(below_max);
    result.distance_slope.push_back(distance_slope);
  });
  return result;
}

}  // namespace isentrope::reference
