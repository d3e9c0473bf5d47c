// The rows of a reference problem and their logits.
#pragma once

#include <functional>
#include <vector>

#include "isentrope/reference.h"

namespace isentrope::reference {

struct Key {
  std::int64_t index;
  double score;            // q.k
  double score_magnitude;  // sum_c |q_c k_c|
  double logit;
  double slope;      // d logit / d (lambda q.k)
  double curvature;  // d slope / d (lambda q.k)
  double distance;   // from the row's position to the key's, in keys
  double kept;       // dropout's factor of its weight; 1 without dropout
  double log_p = 0;  // ln of its weight in the row's softmax
};

struct Row {
  std::int64_t batch, head, kv_head, query;
  std::size_t index;      // row-major
  std::int64_t sequence;  // whose keys the row sees: the batch, unless queries are packed
  double before_cap = 0, after_cap = 1, on_bias = 1;
  std::vector<Key> keys{};  // keys that the row sees
  RowStats statistics{};
  double non_sink_weight = 1;  // weight that the sink leaves to keys; 1 without a sink
  double sink_weight = 0;  // weight of the sink, without the cancellation of 1 - non_sink_weight
};

// Visits every row in row-major order, one at a time because a row holds all its keys.
void for_each_row(const Input& input, const AttentionOptions& options,
                  const std::function<void(const Row&)>& visit);

}  // namespace isentrope::reference
