// What tasks.cc hands to the kernels: one validated call, cut into work items.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/row_state.h"
#include "src/call/dropout.h"
#include "src/call/scale_table.h"
#include "src/cpu/largest_keys.h"
#include "src/cpu/plan.h"

namespace isentrope {

// What the splits of the keys leave for the merge: [item][row of the work item], and the value sums
// beside it.
// States in double and sums in f32, as a row keeps them while it works: the merge loses nothing
// that one long row would not lose.
struct Partials {
  std::int64_t rows = 0;  // of a work item, at most
  std::vector<RowState> states{};
  std::vector<float> sums{};  // [item][row][value_dim]
};

// References: a call outlives its tasks, and every task reads the same one.
struct ForwardCall {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;
  const AttentionOutput& output;
  Partials* partials;  // null where the keys are not split
  Dropout dropout = Dropout(options);
};

struct BackwardCall {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;  // key blocks
  const AttentionGradientInput& gradient;
  const AttentionGradients& result;
  // Each block's share of dq and d_lambda where there are several blocks, else the results
  // themselves.
  const Tensor* dq_of_block;
  const View<float, 3>* d_lambda_of_block;
  LargestKeys* largest_keys;  // null where no gradient asks for them
  Dropout dropout = Dropout(options);
};

// Work items begin ... end - 1 of the plan on the active target, without validation.
void run_forward(const ForwardCall& call, std::int64_t begin, std::int64_t end);
void run_decode(const ForwardCall& call, std::int64_t begin, std::int64_t end);
// How many rows run_decode() takes on the active target; 0 where it does not take the call.
[[nodiscard]] std::int64_t most_rows_of_decode(const ForwardCall& call);
// Of all items, before the first run_backward() of a call that has largest_keys.
void find_largest_keys(const BackwardCall& call, std::int64_t begin, std::int64_t end);
void run_backward(const BackwardCall& call, std::int64_t begin, std::int64_t end);

}  // namespace isentrope
