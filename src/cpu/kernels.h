// Interface between tasks.cc and the kernels: one validated call, cut into work items.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/key_statistics.h"
#include "isentrope/row_state.h"
#include "src/call/dropout.h"
#include "src/call/mask_summary.h"
#include "src/call/scale_table.h"
#include "src/cpu/largest_keys.h"
#include "src/cpu/plan.h"
#include "src/cpu/query_tangents.h"

namespace isentrope {

// Partial results of the splits, to be merged: [item][row of the work item], and their value sums.
// States are in double and sums in f32 as within one row, so merging loses no precision.
struct Partials {
  std::int64_t rows = 0;  // of a work item, at most
  std::vector<RowState> states{};
  std::vector<float> sums{};  // [item][row][value_dim]
};

// Members are references, because a call outlives its tasks and all tasks share it.
struct Call {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;
  Dropout dropout = Dropout(options);
};

struct ForwardCall : Call {
  const MaskSummary& masks;
  const AttentionOutput& output;
  Partials* partials;  // null if the keys are not split
  // [batch, heads, queries, keys]: where decode steps keep their logits in log2, of which
  // run_received_of_logits() sums the weights that keys receive. Without data: not kept.
  View<float, 4> logits{};
};

struct BackwardCall : Call {  // its plan has key blocks
  const AttentionGradientInput& gradient;
  const AttentionGradients& result;
  // Partial dq and d_lambda of each block; the results themselves if there is one block.
  const Tensor* dq_of_block;
  const View<float, 3>* d_lambda_of_block;
  LargestKeys* largest_keys;  // null unless d_max_probability is given
  // Null in the backward pass, which has no tangents of the inputs either.
  const AttentionSecondOrderInput* second = nullptr;
  ConstTensor query_tangents{}, key_tangents{}, value_tangents{};
  bool query_tangents_are_scaled = false;
};

struct TangentCall : Call {
  const AttentionTangentInput& tangent;
  const AttentionTangentOutput& result;
  const QueryTangents& query_tangents;
};

struct ReceivedCall : Call {  // its input has no values, its plan key blocks
  const KeyStatisticsRows& rows;
  const View<float, 3>& result;
};

// Computes work items begin ... end - 1 of the plan on the active target, without validation.
void run_forward(const ForwardCall& call, std::int64_t begin, std::int64_t end);
void run_decode(const ForwardCall& call, std::int64_t begin, std::int64_t end);
// Returns how many rows run_decode() takes on the active target; 0 if it does not support the call.
[[nodiscard]] std::int64_t most_rows_of_decode(const ForwardCall& call);
// Finds the largest keys of all items, before the first run_backward() with largest_keys.
void find_largest_keys(const BackwardCall& call, std::int64_t begin, std::int64_t end);
void run_backward(const BackwardCall& call, std::int64_t begin, std::int64_t end);
void run_received(const ReceivedCall& call, std::int64_t begin, std::int64_t end);
// Sums the weights that the keys of a head receive from the logits that decode steps kept. Each lse
// must be finite. Rows of logits must have room for whole panels.
void run_received_of_logits(const ReceivedCall& call, const View<float, 4>& logits,
                            std::int64_t batch, std::int64_t head);
// Requires call.second.
void run_second_order(const BackwardCall& call, std::int64_t begin, std::int64_t end);
void run_tangent(const TangentCall& call, std::int64_t begin, std::int64_t end);

}  // namespace isentrope
