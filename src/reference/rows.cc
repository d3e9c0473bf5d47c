#include "src/reference/rows.h"

#include <cmath>
#include <limits>

#include "src/call/scale_table.h"
#include "src/reference/dropout.h"
#include "src/reference/mask.h"
#include "src/reference/statistics.h"

namespace isentrope::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double bias_of(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  if (in.bias) return in.bias(row.batch, row.head, row.query, j);
  return options.bias ? options.bias(row.batch, row.head, row.query, j) : 0;
}

// Returns whether boolean mask and bias leave the key visible to the row.
bool is_seen(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  if (options.attn_mask && options.attn_mask(row.batch, row.head, row.query, j) == 0) return false;
  return bias_of(in, options, row, j) != -kInfinity;
}

// The queries and the number of keys of the sequence that a query of a batch belongs to.
struct Sequence {
  std::int64_t index, first_query, queries, keys;
};

Sequence sequence_of(const Input& in, std::int64_t batch, std::int64_t query) {
  Sequence sequence{batch, 0, in.q.extents[2], in.k.extents[2]};
  for (std::int64_t s = 0; in.cu_seq_q && s + 1 < in.cu_seq_q.extents[0]; ++s) {
    if (query < in.cu_seq_q(s) || query >= in.cu_seq_q(s + 1)) continue;
    sequence = {s, in.cu_seq_q(s), in.cu_seq_q(s + 1) - in.cu_seq_q(s), in.k.extents[2]};
  }
  if (in.seqused_k) sequence.keys = in.seqused_k(sequence.index);
  return sequence;
}

// Returns whether no mask that rules count hides the key.
bool is_counted(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  if (options.attn_mask && options.attn_mask(row.batch, row.head, row.query, j) == 0) return false;
  return !options.bias_hides || bias_of(in, options, row, j) != -kInfinity;
}

// Returns the row's length for rules. Masks of single keys cover this call's keys only.
RowLength length_of(const Input& in, const AttentionOptions& options, const Row& row,
                    const MaskedRow& mask) {
  RowLength length = mask.length();
  if (!options.attn_mask && !options.bias_hides) return length;
  length.visible = 0;
  for (std::int64_t j = 0; j < sequence_of(in, row.batch, row.query).keys; ++j)
    length.visible += mask.sees(j) && is_counted(in, options, row, j);
  return length;
}

void resolve_scale(const Input& in, const AttentionOptions& options, const MaskedRow& mask,
                   Row& row) {
  const double slope = options.bias_slopes ? options.bias_slopes(row.head) : 1;
  row.after_cap = 1;
  row.on_bias = slope;
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
  row.on_bias = slope * options.rule.on_bias(length, in.q.extents[3], row.head);
}

Key key_of(const Input& in, const AttentionOptions& options, const Row& row, std::int64_t j) {
  Key key{j, 0, 0, 0, 0, 0, 0, dropout_factor(options, row.batch, row.head, row.query, j)};
  for (std::int64_t c = 0; c < in.q.extents[3]; ++c) {
    const double product =
        in.q(row.batch, row.head, row.query, c) * in.k(row.sequence, row.kv_head, j, c);
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
    key.curvature = -2 * key.slope * std::tanh(scaled / options.soft_cap) / options.soft_cap;
  }
  if (in.bias || options.bias) key.logit += row.on_bias * bias_of(in, options, row, j);
  return key;
}

}  // namespace

void for_each_row(const Input& in, const AttentionOptions& options,
                  const std::function<void(const Row&)>& visit) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1];
  std::size_t index = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t query = 0; query < queries; ++query) {
        const Sequence sequence = sequence_of(in, batch, query);
        Row row{.batch = batch,
                .head = head,
                .kv_head = head / (heads / kv_heads),
                .query = query,
                .index = index++,
                .sequence = sequence.index};
        const MaskedRow mask(options.mask, sequence.index, query - sequence.first_query,
                             sequence.queries, sequence.keys);
        resolve_scale(in, options, mask, row);
        for (std::int64_t j = 0; j < sequence.keys; ++j) {
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
