// Flash attention of ggml by its definition in float64, for one row.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "tests/bindings/ggml/node.h"

namespace isentrope {

struct DefinedRow {
  std::vector<double> output;
  std::vector<double> weights;  // of the keys, after the sink's share
  double max_logit = -std::numeric_limits<double>::infinity(), entropy = 0;
  std::int64_t keys = 0;  // that the mask shows
};

// Factor of the scale, by the number of keys that the row sees.
using Gain = std::function<double(std::int64_t keys)>;
inline double no_gain(std::int64_t /*keys*/) { return 1; }

inline DefinedRow row_by_definition(const Problem& p, const ggml_tensor* node, std::int64_t query,
                                    std::int64_t head, std::int64_t batch,
                                    const Gain& gain = no_gain) {
  const auto [q, k, v, mask, sinks] =
      std::array{node->src[0], node->src[1], node->src[2], node->src[3], node->src[4]};
  const std::int64_t key_head = head / (p.heads / p.kv_heads);
  // ALiBi, for a power of two of heads.
  const double slope =
      p.max_bias > 0 ? std::exp2(-p.max_bias * double(head + 1) / double(p.heads)) : 1;
  const auto bias = [&](std::int64_t key) {
    return mask ? slope * element(mask, key, query, p.mask_per_head ? head : 0, batch) : 0;
  };
  DefinedRow row;
  for (std::int64_t key = 0; key < p.keys; ++key) row.keys += bias(key) > -INFINITY;
  std::vector<double> logits;
  for (std::int64_t key = 0; key < p.keys; ++key) {
    double z = 0;
    for (std::int64_t i = 0; i < p.dim; ++i)
      z += element(q, i, query, head, batch) * element(k, i, key, key_head, batch);
    z *= p.scale * gain(row.keys);
    if (p.soft_cap > 0) z = p.soft_cap * std::tanh(z / p.soft_cap);
    logits.push_back(bias(key) == -INFINITY ? -INFINITY : z + bias(key));
    row.max_logit = std::max(row.max_logit, logits.back());
  }
  double sum = 0;
  for (const double z : logits) sum += std::exp(z - row.max_logit);
  row.output.resize(static_cast<std::size_t>(p.value_dim));
  const double sink = sinks ? std::exp(element(sinks, head, 0, 0, 0) - row.max_logit) : 0;
  for (std::int64_t key = 0; key < p.keys && row.keys > 0; ++key) {
    const double weight = std::exp(logits[static_cast<std::size_t>(key)] - row.max_logit) / sum;
    if (weight > 0) row.entropy -= weight * std::log(weight);
    row.weights.push_back(weight * sum / (sum + sink));
    for (std::int64_t i = 0; i < p.value_dim; ++i)
      row.output[static_cast<std::size_t>(i)] +=
          row.weights.back() * element(v, i, key, key_head, batch);
  }
  return row;
}

}  // namespace isentrope
