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
  std::size_t index;  // row-major
  double before_cap, after_cap, on_bias;
  std::vector<Key> keys;  // keys that the row sees
  RowStats statistics;
  double non_sink_weight;  // weight that the sink leaves to keys; 1 without a sink
  double sink_weight;      // weight of the sink, without the cancellation of 1 - non_sink_weight
};

// Visits every row in row-major order, one at a time because a row holds all its keys.
void for_each_row(const Input& input, const AttentionOptions& options,
                  const std::function<void(const Row&)>& visit);

}  // namespace isentrope::reference
