// Results to which several key blocks contribute, and results that no kernel computes.
#pragma once

#include <vector>

#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "src/cpu/plan.h"

namespace isentrope {

// dq and d_lambda of each key block. A single block writes the results directly. FlashAttention's
// deterministic backward pass does the same, because atomic additions have no fixed order.
class DqAccum {
 public:
  DqAccum(const TilePlan& plan, const AttentionGradients& result);

  // One tensor for each block.
  [[nodiscard]] const Tensor* dq() const { return dq_.data(); }
  [[nodiscard]] const View<float, 3>* d_lambda() const { return d_lambda_.data(); }

  void add_up(const ParallelFor& parallel_for) const;

 private:
  const AttentionGradients& result_;
  std::vector<Tensor> dq_;
  std::vector<View<float, 3>> d_lambda_;
  std::vector<float> storage_;
};

void fill_with_zeros(const Tensor& tensor);
void fill_with_zeros(const View<float, 3>& view);

// Computes d_sink_h = -sum over rows of (1 - w) do.output, with w the non-sink weight.
void add_sink_gradient(const AttentionOptions& options, const AttentionGradientInput& gradient,
                       const View<float, 1>& d_sinks);

// Computes the tangent of that sum for constant do: with r = 1 - w and r' = -r w (lse' - sink'),
// sum over rows of r (w (lse' - sink') do.output - do.output').
void add_sink_gradient(const AttentionOptions& options, const AttentionSecondOrderInput& second,
                       const View<float, 1>& d_sinks);

}  // namespace isentrope
