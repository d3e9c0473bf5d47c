#include "src/cpu/steps/row_results.h"

#include <cmath>

#include "src/cpu/product/tensor_rows.h"
#include "src/row/sink.h"

namespace isentrope {

float lambda_of(const ForwardCall& call, std::int64_t batch, std::int64_t head, std::int64_t query,
                std::int64_t support) {
  const AttentionOptions& options = call.options;
  const float lambda = call.scale.of(batch, head).lambda(query);
  if (support > 0 || options.lambda) return lambda;
  const auto [batches, heads, queries, dim] = call.input.q.extents;
  const RowLength length = counted_length(options, batch, head, query, queries, call.input.keys());
  return length.visible > 0 ? lambda : 0;
}

void write_results(const ForwardCall& call, std::int64_t batch, std::int64_t head,
                   std::int64_t query, const RowState& state, const float* sums) {
  const RowStats stats = finalize(state);
  // Divides, because 1 / s0 would round: a row of one key returns its value. Empty sums stay 0.
  double factor = state.empty() ? 0 : call.dropout.factor / state.s0;
  const auto& sink = call.options.sinks;
  if (sink && !state.empty()) factor *= non_sink_weight(stats.lse, sink(head));
  write_row(call.output.output, batch, head, query, static_cast<float>(factor), sums);

  const RowStatistics& to = call.output.statistics;
  for_each_statistic(
      [&]<typename T>(const Statistic& statistic, const View<T, 3>& view) {
        // Lambda comes from the rule and support is a count: both follow below.
        if (view && statistic.of_row)
          view(batch, head, query) = static_cast<T>(stats.*statistic.of_row);
      },
      to);
  if (to.lambda) {
    to.lambda(batch, head, query) = lambda_of(call, batch, head, query, stats.support);
  }
  if (to.support) to.support(batch, head, query) = stats.support;
}

double output_product(const ConstTensor& output, const ConstTensor& d_output, std::int64_t batch,
                      std::int64_t head, std::int64_t query) {
  // Products are exact in double, and sums may cancel: this enters every weight's gradient.
  const auto number = [&](const ConstTensor& tensor, std::int64_t column) {
    const std::int64_t row =
        batch * tensor.strides[0] + head * tensor.strides[1] + query * tensor.strides[2];
    return static_cast<double>(
        float_at(tensor.type, tensor.data, row + column * tensor.strides[3]));
  };
  double sum = 0;
  for (std::int64_t c = 0; c < output.extents[3]; ++c)
    sum += number(output, c) * number(d_output, c);
  return sum;
}

// Merges in the order of the splits, row by row: some 10^4 numbers, next to millions read.
void merge_splits(const ForwardCall& call, std::int64_t index) {
  const TilePlan& plan = call.plan;
  const Partials& partials = *call.partials;
  // Items of one split are neighbours.
  const std::int64_t of_split = plan.blocks * plan.kv_heads;
  const std::int64_t first = index / of_split * of_split * plan.splits + index % of_split;
  const WorkItem item = item_of(plan, first);
  const std::int64_t group = call.input.q.extents[1] / plan.kv_heads;
  const std::int64_t queries = item.end - item.begin, columns = call.input.v.extents[3];
  std::vector<float> sums(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < group * queries; ++row) {
    RowState state;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t split = 0; split < plan.splits; ++split) {
      const auto at = static_cast<std::size_t>((first + split * of_split) * partials.rows + row);
      const RowState& share = partials.states[at];
      const float* share_sums = partials.sums.data() + at * sums.size();
      if (share.empty()) continue;
      const RowState merged = merge(state, share);
      // While every logit is -inf there is nothing to rescale.
      const auto factor = [&](const RowState& part) {
        return part.empty() || part.max == merged.max
                   ? 1.0f
                   : static_cast<float>(std::exp(part.max - merged.max));
      };
      const float rescale = factor(state), take = factor(share);
      for (std::size_t c = 0; c < sums.size(); ++c)
        sums[c] = rescale * sums[c] + take * share_sums[c];
      state = merged;
    }
    write_results(call, item.batch, item.kv_head * group + row / queries,
                  item.begin + row % queries, state, sums.data());
  }
}

}  // namespace isentrope
