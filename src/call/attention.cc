#include "isentrope/attention.h"

#include "isentrope/derivatives.h"
#include "isentrope/key_statistics.h"
#include "src/call/mask_summary.h"
#include "src/call/scale_table.h"
#include "src/call/validate.h"
#include "src/cpu/dq_accum.h"
#include "src/cpu/tasks.h"

namespace isentrope {
namespace {

// Calls without a parallel_for run on the library's own threads.
ParallelFor threads_of(const AttentionOptions& options) {
  return options.parallel_for ? options.parallel_for : run_on_pool;
}

}  // namespace

void attention_forward(const AttentionInput& in, const AttentionOptions& options,
                       const AttentionOutput& output) {
  validate_forward(in, options, output);
  const auto [batches, heads, queries, dim] = in.q.extents;
  if (batches * heads * queries == 0) return fill_with_zeros(output.received);
  AttentionOutput out = output;
  std::vector<float> lse;
  if (out.received && !out.statistics.lse) {
    lse.resize(static_cast<std::size_t>(batches * heads * queries));
    out.statistics.lse = contiguous_view<float, 3>(lse.data(), {batches, heads, queries});
  }
  const ParallelFor parallel_for = threads_of(options);
  if (in.pages.has_sequences()) return cpu::forward_sequences(in, options, out, parallel_for);
  const MaskSummary masks(in, options, parallel_for);
  const ScaleTable scale(in, options, parallel_for, &masks);
  cpu::forward(in, options, scale, masks, out, parallel_for);
}

void attention_backward(const AttentionInput& in, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result) {
  validate_backward(in, options, gradient, result);
  const ParallelFor parallel_for = threads_of(options);
  const ScaleTable scale(in, options, parallel_for);
  cpu::backward(in, options, scale, gradient, result, parallel_for);
}

void received(const AttentionInput& input, const AttentionOptions& options,
              const KeyStatisticsRows& rows, const View<float, 3>& result) {
  const AttentionInput in = without_values(input);
  validate_received(in, options, rows, result);
  const auto [batches, heads, queries, dim] = in.q.extents;
  if (batches * heads * in.keys() == 0) return;
  const ParallelFor parallel_for = threads_of(options);
  if (in.pages.has_sequences())
    return cpu::received_sequences(in, options, rows, result, parallel_for);
  const ScaleTable scale(in, options, parallel_for);
  cpu::received(in, options, scale, rows, result, parallel_for);
}

void weights_at(const AttentionInput& input, const AttentionOptions& options,
                const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                const KeyWeights& result) {
  const AttentionInput in = without_values(input);
  validate_weights_at(in, options, lse, keys, result);
  const ParallelFor parallel_for = threads_of(options);
  if (in.pages.has_sequences())
    return cpu::weights_at_sequences(in, options, lse, keys, result, parallel_for);
  const ScaleTable scale(in, options, parallel_for);
  cpu::weights_at(in, options, scale, lse, keys, result, parallel_for);
}

void attention_tangent(const AttentionInput& in, const AttentionOptions& options,
                       const AttentionTangentInput& tangent, const AttentionTangentOutput& result) {
  validate_tangent(in, options, tangent, result);
  const auto [batches, heads, queries, dim] = in.q.extents;
  if (batches * heads * queries == 0) return;
  const ParallelFor parallel_for = threads_of(options);
  const ScaleTable scale(in, options, parallel_for);
  cpu::tangent(in, options, scale, tangent, result, parallel_for);
}

void attention_second_order(const AttentionInput& in, const AttentionOptions& options,
                            const AttentionSecondOrderInput& second,
                            const AttentionGradients& result) {
  validate_second_order(in, options, second, result);
  const ParallelFor parallel_for = threads_of(options);
  const ScaleTable scale(in, options, parallel_for);
  cpu::second_order(in, options, scale, second, result, parallel_for);
}

}  // namespace isentrope
