// TilePlan: how a call is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace isentrope {

// One task is one run of rows (forward: queries, backward: keys) of one head. A task packs the other side
// once, so a run is as long as parallel work allows. The plan is a function of the shape alone, never of
// the threads: so are the bits of the result.
struct TilePlan {
  std::int64_t heads = 0;   // batch times heads
  std::int64_t rows = 0;    // of each head
  std::int64_t run = 1;     // rows of a task; the last run of a head may be shorter
  std::int64_t runs = 0;    // tasks of a head

  [[nodiscard]] std::int64_t tasks() const { return heads * runs; }
};

// The part of the plan that task `index` works on.
struct Task {
  std::int64_t head, run, begin, end;
};

[[nodiscard]] inline Task task_of(const TilePlan& plan, std::int64_t index) {
  const std::int64_t head = index / plan.runs, run = index % plan.runs;
  return {head, run, run * plan.run, std::min(plan.rows, (run + 1) * plan.run)};
}

[[nodiscard]] inline TilePlan plan_runs(std::int64_t heads, std::int64_t rows, std::int64_t run) {
  return {heads, rows, run, (rows + run - 1) / run};
}

// Packing the keys costs a task about 1/run of its arithmetic: invisible at 1024 queries, a few per cent
// at 192, below which there is too little work for another thread to be worth it.
[[nodiscard]] inline TilePlan plan_forward(std::int64_t heads, std::int64_t queries) {
  return plan_runs(heads, queries, std::clamp<std::int64_t>((queries + 7) / 8, 192, 1024));
}

// Each run of keys holds its own sum of dq until all are added in order, so there are at most eight: memory
// stays proportional to queries.
[[nodiscard]] inline TilePlan plan_backward(std::int64_t heads, std::int64_t keys) {
  return plan_runs(heads, keys, std::max<std::int64_t>((keys + 7) / 8, 512));
}

}  // namespace isentrope
