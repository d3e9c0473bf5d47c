#include "src/reference/rows.h"

#include <cmath>
#include <limits>

#include "src/call/scale_table.h"
#include "src/reference/dropout.h"
#include "src/reference/mask.h"

namespace isentrope::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double bias_of(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  if (in.bias) return in.bias(row.batch, row.head, row.query, j);
  return options.bias ? options.bias(row.batch, row.head, row.query, j) : 0;
}

// Whether boolean mask and bias leave the row this key.
bool is_seen(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  if (options.attn_mask && options.attn_mask(row.batch, row.head, row.query, j) == 0) return false;
  return bias_of(in, options, row, j) != -kInfinity;
}

// What the rule may know of the row. A boolean mask is of this call's keys, and so is their number.
RowLength length_of(const Input& in, const AttentionOptions& options, const Row& row,
                    const MaskedRow& mask) {
  RowLength length = mask.length();
  if (!options.attn_mask) return length;
  length.visible = 0;
  for (std::int64_t j = 0; j < in.k.extents[2]; ++j)
    length.visible += mask.sees(j) && options.attn_mask(row.batch, row.head, row.query, j) != 0;
  return length;
}

void resolve_scale(const Input& in, const AttentionOptions& options, const MaskedRow& mask,
                   Row& row) {
  row.after_cap = row.on_bias = 1;
  if (in.lambda) {
    row.before_cap = in.lambda(row.batch, row.head, row.query);
    return;
  }
  if (options.lambda) {
    row.before_cap = options.lambda(row.batch, row.head, row.query);
    return;
  }
  const RowLength length = length_of(in, options, row, mask);
  row.before_cap = options.rule.pre_cap(length, in.q.extents[3], row.head);
  row.after_cap = options.rule.post_cap(length, in.q.extents[3], row.head);
  if (options.soft_cap == 0) {  // one factor, and d_lambda is of all of it
    row.before_cap *= row.after_cap;
    row.after_cap = 1;
  }
  row.before_cap = in_float_range(row.before_cap);
  row.on_bias = options.rule.on_bias(length, in.q.extents[3], row.head);
}

Key key_of(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  Key key{j, 0, 0, 0, 0, 0, dropout_factor(options, row.batch, row.head, row.query, j)};
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    const double product =
        in.q(row.batch, row.head, row.query, c) * in.k(row.batch, row.kv_head, j, c);
    key.score += product;
    key.score_magnitude += std::abs(product);
  }
  const double scaled = row.before_cap * key.score;
  key.logit = row.after_cap * scaled;
  key.slope = row.after_cap;
  if (options.soft_cap > 0) {
    const double cosh = std::cosh(scaled / options.soft_cap);
    key.logit = row.after_cap * options.soft_cap * std::tanh(scaled / options.soft_cap);
    key.slope = row.after_cap / (cosh * cosh);
  }
  if (in.bias || options.bias) key.logit += row.on_bias * bias_of(in, options, row, j);
  return key;
}

// Every statistic as its definition reads. None of this is shared with the sums that kernels merge:
// what judges them must not repeat their mistakes. Sets the keys' log_p.
RowStats statistics_of(std::vector<Key>& keys) {
  RowStats stats;
  if (keys.empty()) return stats;
  stats.support = static_cast<std::int64_t>(keys.size());
  for (const Key& key : keys) {
    if (std::isnan(key.logit) || key.logit > stats.max_logit) stats.max_logit = key.logit;
    if (std::isnan(key.logit)) break;
  }
  // From the largest on: then no weight is above 1, and a row of logits near 1e9 loses no digits.
  double sum = 0;
  for (const Key& key : keys) {
    if (key.logit != -kInfinity) sum += std::exp(key.logit - stats.max_logit);
  }
  stats.lse = stats.max_logit + std::log(sum);
  for (Key& key : keys) key.log_p = (key.logit - stats.max_logit) - std::log(sum);
  double mean = 0;  // of z - max, whose digits ln p would lose where logits are nearly equal
  for (const Key& key : keys) {
    const double p = std::exp(key.log_p);
    stats.collision += p * p;
    stats.distance += p * key.distance;
    if (p == 0) continue;  // its logit may be -inf
    stats.entropy -= p * key.log_p;
    mean += p * (key.logit - stats.max_logit);
  }
  for (const Key& key : keys) {
    const double p = std::exp(key.log_p);
    if (std::isnan(p) || p > stats.max_probability) stats.max_probability = p;
    if (std::isnan(p)) break;
  }
  for (const Key& key : keys) {
    const double p = std::exp(key.log_p), apart = (key.logit - stats.max_logit) - mean;
    if (p != 0) stats.variance += p * apart * apart;
  }
  if (std::isnan(sum)) stats.max_logit = sum;  // a logit of +inf makes the row NaN
  return stats;
}

}  // namespace

void for_each_row(const Input& in, const AttentionOptions& options,
                  const std::function<void(const Row&)>& visit) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], keys = in.k.extents[2];
  std::size_t index = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t query = 0; query < queries; ++query) {
        Row row{batch, head, head / (heads / kv_heads), query, index++, 0, 1, 1, {}, {}, 1, 0};
        const MaskedRow mask(options.mask, batch, query, queries, keys);
        resolve_scale(in, options, mask, row);
        for (std::int64_t j = 0; j < keys; ++j) {
          if (!mask.sees(j) || !is_seen(in, options, row, j)) continue;
          row.keys.push_back(key_of(in, options, row, j));
          row.keys.back().distance = static_cast<double>(mask.distance(j));
        }
        row.statistics = statistics_of(row.keys);
        if (in.sinks || options.sinks) {
          const double sink = in.sinks ? in.sinks(head) : options.sinks(head);
          row.non_sink_weight = 1 / (1 + std::exp(sink - row.statistics.lse));
          row.sink_weight = 1 / (1 + std::exp(row.statistics.lse - sink));
        }
        visit(row);
      }
    }
  }
}

}  // namespace isentrope::reference
