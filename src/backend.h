// Backend: who computes a call, once it is validated and its scales are known.
#pragma once

#include "isentrope/attention.h"
#include "src/call/scale_table.h"

namespace isentrope {

struct ForwardPass {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const AttentionOutput& output;
  const ParallelFor& parallel_for;
};

struct BackwardPass {
  const AttentionInput& input;
  const AttentionOptions& options;
  const ScaleTable& scale;
  const AttentionGradientInput& gradient;
  const AttentionGradients& result;
  const ParallelFor& parallel_for;
};

// How a pass is cut into tasks, and which of them are decode steps, is the backend's own business:
// both depend on its tiles. The bits of a result depend on the backend, never on the threads.
class Backend {
 public:
  virtual void forward(const ForwardPass& pass) const = 0;
  virtual void backward(const BackwardPass& pass) const = 0;

 protected:
  ~Backend() = default;
};

// The one that computes where the tensors of a call lie.
[[nodiscard]] const Backend& backend_of(const AttentionInput& input);

}  // namespace isentrope
