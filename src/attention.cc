#include "isentrope/attention.h"

#include <vector>

#include "src/cpu/kernels.h"
#include "src/scale_table.h"
#include "src/tile_plan.h"
#include "src/validate.h"

namespace isentrope {
namespace {

void fill_with_zeros(const View<float, 4>& view) {
  const auto [batches, heads, rows, columns] = view.extents;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) view(b, h, r, c) = 0;
      }
    }
  }
}

// dq = the runs' shares, added in order.
void add_runs(const std::vector<View<float, 4>>& shares, const View<float, 4>& dq,
              const ParallelFor& parallel_for) {
  const auto [batches, heads, queries, dim] = dq.extents;
  parallel_for(batches * heads, [&, heads = heads, queries = queries, dim = dim](std::int64_t head) {
    const std::int64_t b = head / heads, h = head % heads;
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t c = 0; c < dim; ++c) {
        float sum = 0;
        for (const View<float, 4>& share : shares) sum += share(b, h, i, c);
        dq(b, h, i, c) = sum;
      }
    }
  });
}

}  // namespace

void attention_forward(const AttentionInput& in, const AttentionOptions& options,
                       const AttentionOutput& out) {
  validate_forward(in, out);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const ScaleTable lambda(options.rule, options.mask, heads, queries, in.k.extents[2], dim);
  const TilePlan plan = plan_forward(batch * heads, queries);
  const ForwardCall call{in, options.mask, lambda, plan, out};
  options.parallel_for(plan.tasks(), [&](std::int64_t task) { run_forward_task(call, task); });
}

void attention_backward(const AttentionInput& in, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result) {
  validate_backward(in, gradient, result);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::int64_t keys = in.k.extents[2];
  if (keys == 0) return fill_with_zeros(result.dq);
  const ScaleTable lambda(options.rule, options.mask, heads, queries, keys, dim);
  const TilePlan plan = plan_backward(batch * heads, keys);

  const std::int64_t shares = plan.runs == 1 ? 0 : plan.runs;
  std::vector<float> share_data(static_cast<std::size_t>(shares * batch * heads * queries * dim));
  std::vector<View<float, 4>> dq_of_run(1, result.dq);
  if (shares > 0) dq_of_run.clear();
  for (std::int64_t run = 0; run < shares; ++run) {
    float* data = share_data.data() + run * batch * heads * queries * dim;
    dq_of_run.push_back(contiguous_view(data, in.q.extents));
  }
  const BackwardCall call{in, options.mask, lambda, plan, gradient, result, dq_of_run.data()};
  options.parallel_for(plan.tasks(), [&](std::int64_t task) { run_backward_task(call, task); });
  if (shares > 0) add_runs(dq_of_run, result.dq, options.parallel_for);
}

}  // namespace isentrope
