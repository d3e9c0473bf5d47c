// Weights of chosen keys: one dot product each, in double, with no vectors because keys are few.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "src/call/scale_table.h"
#include "src/cpu/plan.h"
#include "src/cpu/product/tensor_rows.h"
#include "src/cpu/tasks.h"
#include "src/row/sink.h"

namespace isentrope::cpu {
namespace {

// Rows of a task: some 10^5 multiplications for a few keys each.
constexpr std::int64_t kRowsOfTask = 256;

// Weight of a key, and derivatives of its logit by q.k and by the bias.
struct KeyWeight {
  double weight = 0, by_score = 0, by_bias = 0;
};

class WeightsOfRow {
 public:
  WeightsOfRow(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
               const View<const float, 3>& lse, std::int64_t batch, std::int64_t head,
               std::int64_t query)
      : in_(in),
        options_(options),
        batch_(batch),
        head_(head),
        query_(query),
        kv_head_(head / (in.q.extents[1] / in.k.extents[1])),
        scale_(scale.of(batch, head)),
        keys_(row_view(options.mask, batch, query, in.q.extents[2], in.keys()).keys),
        lse_(static_cast<double>(lse(batch, head, query))),
        kept_(options.sinks ? non_sink_weight(lse_, options.sinks(head)) : 1) {}

  [[nodiscard]] KeyWeight at(std::int64_t key) const {
    if (!keys_.holds(key) || is_masked(key)) return {};
    const double cap = options_.soft_cap, after_cap = scale_.after_cap[query_];
    const double scaled = scale_.before_cap[query_] * score(key);
    const double tanh = cap > 0 ? std::tanh(scaled / cap) : 0;
    double logit = after_cap * (cap > 0 ? cap * tanh : scaled);
    if (options_.bias)
      logit += static_cast<double>(scale_.on_bias[query_]) *
               static_cast<double>(options_.bias(batch_, head_, query_, key));
    // No logit exceeds its row's lse, except by rounding.
    const double t = logit - lse_;
    return {.weight = kept_ * std::exp(t > 0 ? 0 : t),
            .by_score = scale_.before_cap[query_] * after_cap * (1 - tanh * tanh),
            .by_bias = scale_.on_bias[query_]};
  }

 private:
  [[nodiscard]] bool is_masked(std::int64_t key) const {
    const auto& mask = options_.attn_mask;
    if (mask && mask(batch_, head_, query_, key) == 0) return true;
    return options_.bias && options_.bias(batch_, head_, query_, key) == -INFINITY;
  }

  [[nodiscard]] double score(std::int64_t key) const {
    std::int64_t outer = batch_;
    if (in_.pages) {
      outer = in_.pages.block_table(batch_, key / in_.k.extents[2]);
      key %= in_.k.extents[2];
    }
    const auto& q = in_.q.strides;
    const auto& k = in_.k.strides;
    const std::int64_t columns = in_.q.extents[3];
    const std::int64_t of_q = batch_ * q[0] + head_ * q[1] + query_ * q[2];
    const std::int64_t of_k = outer * k[0] + kv_head_ * k[1] + key * k[2];
    const std::int64_t group = in_.k_scale ? columns / in_.k_scale.extents[3] : columns;
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      float number = float_at(in_.k.type, in_.k.data, of_k + c * k[3]);
      if (in_.k_scale) number *= in_.k_scale(outer, kv_head_, key, c / group);
      sum += static_cast<double>(float_at(in_.q.type, in_.q.data, of_q + c * q[3])) *
             static_cast<double>(number);
    }
    return sum;
  }

  const AttentionInput& in_;
  const AttentionOptions& options_;
  const std::int64_t batch_, head_, query_, kv_head_;
  const HeadScale scale_;
  const KeyRange keys_;
  const double lse_, kept_;  // the weight that a sink leaves
};

}  // namespace

void weights_at(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
                const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                const KeyWeights& result, const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t rows = batches * heads * queries, chosen = keys.extents[3];
  parallel_for(divide_up(rows, kRowsOfTask), [&](std::int64_t task) {
    const std::int64_t end = std::min(rows, (task + 1) * kRowsOfTask);
    for (std::int64_t row = task * kRowsOfTask; row < end; ++row) {
      const std::int64_t query = row % queries, head = row / queries % heads,
                         batch = row / queries / heads;
      const WeightsOfRow of_row(in, options, scale, lse, batch, head, query);
      for (std::int64_t c = 0; c < chosen; ++c) {
        const KeyWeight key = of_row.at(keys(batch, head, query, c));
        result.weights(batch, head, query, c) = static_cast<float>(key.weight);
        if (result.by_score)
          result.by_score(batch, head, query, c) = static_cast<float>(key.by_score);
        if (result.by_bias) result.by_bias(batch, head, query, c) = static_cast<float>(key.by_bias);
      }
    }
  });
}

}  // namespace isentrope::cpu
