#include "src/cpu/tasks.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "src/cpu/dq_accum.h"
#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/steps/row_results.h"

namespace isentrope::cpu {
namespace {

// Calls run(begin, end) with the work items of each task. Which thread takes a task does not change
// bits, because each item is computed by one thread in a fixed order.
template <typename Run>
void for_each_task(const TilePlan& plan, const ParallelFor& parallel_for, const Run& run) {
  parallel_for(plan.tasks(), [&](std::int64_t task) {
    const std::int64_t begin = task * plan.items_per_task;
    run(begin, std::min(plan.items(), begin + plan.items_per_task));
  });
}

// Consecutive items of one kind share memory. Short last blocks of a head may differ in kind.
void run_items(const ForwardCall& call, std::int64_t begin, std::int64_t end,
               std::int64_t most_decode_rows) {
  const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
  const auto decodes = [&](std::int64_t index) {
    const WorkItem item = item_of(call.plan, index);
    return group * (item.end - item.begin) <= most_decode_rows;
  };
  for (std::int64_t index = begin; index < end;) {
    const bool decode = decodes(index);
    std::int64_t last = index + 1;
    while (last < end && decodes(last) == decode) ++last;
    (decode ? run_decode : run_forward)(call, index, last);
    index = last;
  }
}

bool asks_for_largest_keys(const AttentionGradientInput& gradient) {
  bool asks = false;
  for_each_statistic([&](const Statistic& statistic,
                         const auto& d) { asks |= d && (statistic.gradient & kLargestKey); },
                     gradient.d_statistics);
  return asks;
}

}  // namespace

void forward(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
             const AttentionOutput& output, const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], group = heads / kv_heads;
  // The third extent of a paged tensor is the page size, so the page table tells how many keys.
  const TilePlan plan = plan_forward(batches, kv_heads, group, queries, in.keys());

  // Each split has its own state and sums, merged later, so that timing does not change results.
  Partials partials{.rows = group * plan.block_rows};
  const bool split = plan.splits > 1;
  if (split) {
    const auto rows = static_cast<std::size_t>(plan.items() * partials.rows);
    partials.states.resize(rows);
    partials.sums.resize(rows * static_cast<std::size_t>(in.v.extents[3]));
  }
  const ForwardCall call{in, options, scale, plan, output, split ? &partials : nullptr};
  const std::int64_t most_decode_rows = most_rows_of_decode(call);
  for_each_task(plan, parallel_for, [&](std::int64_t begin, std::int64_t end) {
    run_items(call, begin, end, most_decode_rows);
  });
  if (!split) return;
  parallel_for(plan.items() / plan.splits, [&](std::int64_t index) { merge_splits(call, index); });
}

void backward(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
              const AttentionGradientInput& gradient, const AttentionGradients& result,
              const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], keys = in.k.extents[2];
  // Kernels visit only keys in ranges, and d_bias covers all keys.
  fill_with_zeros(result.d_bias);
  if (result.d_sinks) add_sink_gradient(options, gradient, result.d_sinks);
  if (batches * heads * queries * keys == 0) {
    // There is nothing to compute, but the results must still be written.
    for (const Tensor* tensor : {&result.dq, &result.dk, &result.dv}) fill_with_zeros(*tensor);
    return fill_with_zeros(result.d_lambda);
  }
  const TilePlan plan = plan_backward(batches, kv_heads, heads / kv_heads, queries, keys);
  // Key blocks write partial sums of dq, which are added in order.
  const DqAccum accum(plan, result);
  std::optional<LargestKeys> largest;
  if (asks_for_largest_keys(gradient)) largest.emplace(plan, in, options.mask);
  const BackwardCall call{in,         options,          scale,
                          plan,       gradient,         result,
                          accum.dq(), accum.d_lambda(), largest ? &*largest : nullptr};
  if (largest) {
    for_each_task(plan, parallel_for, [&](std::int64_t begin, std::int64_t end) {
      find_largest_keys(call, begin, end);
    });
  }
  for_each_task(plan, parallel_for,
                [&](std::int64_t begin, std::int64_t end) { run_backward(call, begin, end); });
  accum.add_up(parallel_for);
}

void received(const AttentionInput& in, const AttentionOptions& options, const ScaleTable& scale,
              const KeyStatisticsRows& rows, const View<float, 3>& result,
              const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1];
  const TilePlan plan = plan_received(batches, kv_heads, heads / kv_heads, queries, in.keys());
  const ReceivedCall call{in, options, scale, plan, rows, result};
  for_each_task(plan, parallel_for,
                [&](std::int64_t begin, std::int64_t end) { run_received(call, begin, end); });
}

}  // namespace isentrope::cpu
