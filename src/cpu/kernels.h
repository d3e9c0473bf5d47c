// Interface between tasks.cc and the kernels: one validated call, cut into work items.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/key_statistics.h"
#include "isentrope/row_state.h"
#include "src/call/dropout.h"
#include "src/call/scale_table.h"
#include "src/cpu/largest_keys.h"
#include "src/cpu/plan.h"

namespace isentrope {

// Partial results of the splits, to be merged: [item][row of the work item], and their value sums.
// States are in double and sums in f32 as within one row, so merging loses no precision.
struct Partials {
  std::int64_t rows = 0;  // of a work item, at most
  std::vector<RowState> states{};
  std::vector<float> sums{};  // [item][row][value_dim]
};

// Members are references, because a call outlives its tasks and all tasks share it.
struct ForwardCall {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;
  const AttentionOutput& output;
  Partials* partials;  // null if the keys are not split
  Dropout dropout = Dropout(options);
};

struct BackwardCall {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;  // key blocks
  const AttentionGradientInput& gradient;
  const AttentionGradients& result;
  // Partial dq and d_lambda of each block; the results themselves if there is one block.
  const Tensor* dq_of_block;
  const View<float, 3>* d_lambda_of_block;
  LargestKeys* largest_keys;  // null unless d_max_probability is given
  Dropout dropout = Dropout(options);
};

struct ReceivedCall {
  const AttentionInput& input;  // without values
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;  // key blocks
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

}  // namespace isentrope
