// What attention.cc hands to the kernels: one validated call, cut into tasks.
#pragma once

#include <cstdint>

#include "isentrope/attention.h"
#include "src/scale_table.h"
#include "src/tile_plan.h"

namespace isentrope {

struct ForwardCall {
  const AttentionInput& input;
  const Mask& mask;
  const ScaleTable& lambda;
  const TilePlan& plan;
  const AttentionOutput& output;
};

struct BackwardCall {
  const AttentionInput& input;
  const Mask& mask;
  const ScaleTable& lambda;
  const TilePlan& plan;  // runs of keys
  const AttentionGradientInput& gradient;
  const AttentionGradients& result;
  // [run][head][query][dim]: each run's share of dq where there are several, else the result itself.
  const View<float, 4>* dq_of_run;
};

// One task on the active target, without validation or allocation shared between threads.
void run_forward_task(const ForwardCall& call, std::int64_t task);
void run_backward_task(const BackwardCall& call, std::int64_t task);

}  // namespace isentrope
