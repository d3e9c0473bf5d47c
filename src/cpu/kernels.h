// What attention.cc hands to the kernels: one validated call, cut into parts.
#pragma once

#include <cstdint>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/row_state.h"
#include "src/call/scale_table.h"
#include "src/cpu/plan.h"

namespace isentrope {

// What the splits of the keys leave for the merge: [part][row of the part], and the value sums
// beside it.
struct Partials {
  std::int64_t rows = 0;  // of a part, at most
  std::vector<RowState> states{};
  std::vector<float> sums{};  // [part][row][value_dim]
};

struct ForwardCall {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;
  const AttentionOutput& output;
  Partials* partials;  // null where the keys are not split
};

struct BackwardCall {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const TilePlan& plan;  // runs of keys
  const AttentionGradientInput& gradient;
  const AttentionGradients& result;
  // Each run's share of dq and d_lambda where there are several runs, else the results themselves.
  const Tensor* dq_of_run;
  const View<float, 3>* d_lambda_of_run;
};

// Parts begin ... end - 1 of the plan on the active target, without validation.
void run_forward(const ForwardCall& call, std::int64_t begin, std::int64_t end);
void run_backward(const BackwardCall& call, std::int64_t begin, std::int64_t end);

}  // namespace isentrope
