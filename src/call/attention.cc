#include "isentrope/attention.h"

#include <algorithm>
#include <vector>

#include "src/call/scale_table.h"
#include "src/call/validate.h"
#include "src/cpu/dq_accum.h"
#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/product/row_list.h"
#include "src/cpu/steps/row_results.h"

namespace isentrope {
namespace {

// Calls without a parallel_for run on the library's own threads.
ParallelFor threads_of(const AttentionOptions& options) {
  return options.parallel_for ? options.parallel_for : run_on_pool;
}

// run(begin, end) for the parts begin ... end - 1 of each task.
template <typename Run>
void for_each_task(const TilePlan& plan, const ParallelFor& parallel_for, const Run& run) {
  parallel_for(plan.tasks(), [&](std::int64_t task) {
    const std::int64_t begin = task * plan.items_per_task;
    run(begin, std::min(plan.items(), begin + plan.items_per_task));
  });
}

}  // namespace

void attention_forward(const AttentionInput& in, const AttentionOptions& options,
                       const AttentionOutput& out) {
  validate_forward(in, options, out);
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], keys = in.pages ? in.pages.keys : in.k.extents[2];
  if (batches * heads * queries == 0) return;
  const ScaleTable scale(in, options);
  const TilePlan plan = plan_forward(batches, kv_heads, heads / kv_heads, queries, keys);
  const ParallelFor parallel_for = threads_of(options);

  Partials partials{.rows = heads / kv_heads * plan.block_rows};
  const bool split = plan.splits > 1;
  if (split) {
    const auto rows = static_cast<std::size_t>(plan.items() * partials.rows);
    partials.states.resize(rows);
    partials.sums.resize(rows * static_cast<std::size_t>(in.v.extents[3]));
  }
  const ForwardCall call{in, options, scale, plan, out, split ? &partials : nullptr};
  for_each_task(plan, parallel_for,
                [&](std::int64_t begin, std::int64_t end) { run_forward(call, begin, end); });
  if (split) {
    parallel_for(plan.items() / plan.splits,
                 [&](std::int64_t index) { merge_splits(call, index); });
  }
}

void attention_backward(const AttentionInput& in, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result) {
  validate_backward(in, options, gradient, result);
  const auto [batches, heads, queries, dim] = in.q.extents;
  const std::int64_t kv_heads = in.k.extents[1], keys = in.k.extents[2];
  const ParallelFor parallel_for = threads_of(options);
  fill_with_zeros(result.d_bias);  // the kernels visit admitted keys only
  if (result.d_sink) add_sink_gradient(options, gradient, result.d_sink);
  if (batches * heads * queries * keys == 0) {
    // The kernels have nothing to visit, but the results are the caller's all the same.
    for (const Tensor* tensor : {&result.dq, &result.dk, &result.dv}) fill_with_zeros(*tensor);
    return fill_with_zeros(result.d_lambda);
  }
  const ScaleTable scale(in, options);
  const TilePlan plan = plan_backward(batches, kv_heads, heads / kv_heads, queries, keys);
  DqAccum shares(plan, result);
  const BackwardCall call{in,       options, scale,       plan,
                          gradient, result,  shares.dq(), shares.d_lambda()};
  for_each_task(plan, parallel_for,
                [&](std::int64_t begin, std::int64_t end) { run_backward(call, begin, end); });
  shares.add_up(parallel_for);
}

}  // namespace isentrope
