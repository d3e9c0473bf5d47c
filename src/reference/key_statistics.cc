#include <algorithm>
#include <cmath>

#include "isentrope/reference.h"
#include "src/reference/rows.h"

namespace isentrope::reference {

// received_j = sum_i w_i p_ij. Rows of weight 0 do not count, even if they are NaN.
std::vector<std::vector<double>> received(const Input& in, const AttentionOptions& options,
                                          const std::vector<std::vector<double>>& weights) {
  const std::int64_t keys = in.k.extents[2];
  const std::int64_t count = in.k.extents[0] * in.q.extents[1] * keys;
  std::vector<std::vector<double>> result(weights.size(),
                                          std::vector<double>(static_cast<std::size_t>(count)));
  for_each_row(in, options, [&](const Row& row) {
    const std::int64_t first = (row.sequence * in.q.extents[1] + row.head) * keys;
    for (const Key& key : row.keys) {
      const double p = row.non_sink_weight * std::exp(key.log_p);
      for (std::size_t set = 0; set < weights.size(); ++set) {
        const double weight = weights[set][row.index];
        if (weight != 0) result[set][static_cast<std::size_t>(first + key.index)] += weight * p;
      }
    }
  });
  return result;
}

KeyWeights weights_at(const Input& in, const AttentionOptions& options,
                      const View<const std::int64_t, 4>& keys) {
  KeyWeights result;
  for_each_row(in, options, [&](const Row& row) {
    for (std::int64_t c = 0; c < keys.extents[3]; ++c) {
      const std::int64_t wanted = keys(row.batch, row.head, row.query, c);
      const auto key = std::ranges::find(row.keys, wanted, &Key::index);
      const bool seen = key != row.keys.end();
      result.weights.push_back(seen ? row.non_sink_weight * std::exp(key->log_p) : 0);
      result.by_score.push_back(seen ? row.before_cap * key->slope : 0);
      result.by_bias.push_back(seen ? row.on_bias : 0);
    }
  });
  return result;
}

}  // namespace isentrope::reference
