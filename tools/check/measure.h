// Times problems: the call is prepared once, then run repeatedly.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tools/check/room.h"

namespace isentrope::check {

// Multiplications and additions of a problem: forward 2 (dim + value_dim) for each pair of a row
// and a key it sees, and the five products of a backward pass. `from_inputs` counts products of two
// inputs: scores (again in the backward pass) and dp. `scores` counts pairs.
struct Work {
  double flops = 0, from_inputs = 0, scores = 0;
};
[[nodiscard]] Work work_of(const Data& data);

// Call of a problem with memory for every result: all statistics, and the gradients of q, k and v.
class PreparedCall {
 public:
  // Throws Error if the operator rejects the problem.
  PreparedCall(const Problem& problem, const ParallelFor& parallel_for);

  // Runs forward, and backward if the problem has it, on the active target. Returns seconds.
  double run();

  [[nodiscard]] const Data& data() const { return data_; }

 private:
  Data data_;
  AttentionOptions options_;
  // Memory of the views below.
  std::deque<Room> rooms_;
  StatisticFields<std::vector<float>, std::vector<std::int64_t>> statistics_;
  AttentionInput input_;
  AttentionOutput output_;
  AttentionGradientInput upstream_;
  AttentionGradients gradients_;
};

// Returns the median of values, which must not be empty.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace isentrope::check
