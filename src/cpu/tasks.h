// A call on the CPU, after validation and with its scales known: cut into tasks for threads.
#pragma once

#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/key_statistics.h"
#include "src/call/mask_summary.h"
#include "src/call/scale_table.h"

namespace isentrope::cpu {

// The bits of a result depend on shapes and instruction set, never on the threads.
void forward(const AttentionInput& input, const AttentionOptions& options, const ScaleTable& scale,
             const MaskSummary& masks, const AttentionOutput& output,
             const ParallelFor& parallel_for);

// Each sequence of a paged cache is planned as a call of its own, and their tasks run together.
void forward_sequences(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const ParallelFor& parallel_for);

void backward(const AttentionInput& input, const AttentionOptions& options, const ScaleTable& scale,
              const AttentionGradientInput& gradient, const AttentionGradients& result,
              const ParallelFor& parallel_for);

void received(const AttentionInput& input, const AttentionOptions& options, const ScaleTable& scale,
              const KeyStatisticsRows& rows, const View<float, 3>& result,
              const ParallelFor& parallel_for);

// Each sequence of a paged cache is a call of its own.
void received_sequences(const AttentionInput& input, const AttentionOptions& options,
                        const KeyStatisticsRows& rows, const View<float, 3>& result,
                        const ParallelFor& parallel_for);

void weights_at(const AttentionInput& input, const AttentionOptions& options,
                const ScaleTable& scale, const View<const float, 3>& lse,
                const View<const std::int64_t, 4>& keys, const KeyWeights& result,
                const ParallelFor& parallel_for);

void weights_at_sequences(const AttentionInput& input, const AttentionOptions& options,
                          const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                          const KeyWeights& result, const ParallelFor& parallel_for);

void second_order(const AttentionInput& input, const AttentionOptions& options,
                  const ScaleTable& scale, const AttentionSecondOrderInput& second,
                  const AttentionGradients& result, const ParallelFor& parallel_for);

void tangent(const AttentionInput& input, const AttentionOptions& options, const ScaleTable& scale,
             const AttentionTangentInput& tangent, const AttentionTangentOutput& result,
             const ParallelFor& parallel_for);

}  // namespace isentrope::cpu
