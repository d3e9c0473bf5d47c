// Timing of problems: the call prepared once, then run as often as wanted.
#pragma once

#include <cstdint>
#include <vector>

#include "check/data.h"

namespace isentrope::check {

// Multiplications and additions of a problem: forward 2 (dim + value_dim) for each pair of a row
// and a key it sees, and the five products of the backward pass where the problem has one. Of
// these, `from_inputs` are those of two inputs: scores, again in the backward pass, and dp.
// `scores` counts the pairs.
struct Work {
  double flops = 0, from_inputs = 0, scores = 0;
};
[[nodiscard]] Work work_of(const Data& data);

// A problem's call with room for every result: all statistics, and the gradients of q, k and v.
class PreparedCall {
 public:
  // Throws Error when the operator rejects the problem.
  PreparedCall(const Problem& problem, const ParallelFor& parallel_for);

  // Forward, and backward where the problem has it, on the active target. Seconds.
  double run();

  [[nodiscard]] const Data& data() const { return data_; }

 private:
  Tensor room(const std::array<std::int64_t, 4>& shape);

  Data data_;
  AttentionOptions options_;
  // What the views below look at.
  std::vector<std::vector<float>> floats_;
  StatisticFields<std::vector<float>, std::vector<std::int64_t>> statistics_;
  AttentionInput input_;
  AttentionOutput output_;
  AttentionGradientInput upstream_;
  AttentionGradients gradients_;
};

// Half of the values are larger. Not empty.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace isentrope::check
