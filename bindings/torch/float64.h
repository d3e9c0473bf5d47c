// Calls in float64, computed by the reference: slow, single-threaded, and exact to double.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bindings/torch/call.h"
#include "bindings/torch/derivatives.h"
#include "isentrope/view.h"

namespace isentrope::stable {

// Returns shapes and types of the call, as float32, for validation. Its arrays may not be read.
[[nodiscard]] AttentionInput shapes_of(const CallArguments& call);

// A call's input; keys and values of a paged cache are gathered from their pages.
class InputInFloat64 {
 public:
  // in: shapes of the call, and its sequences.
  InputInFloat64(const CallArguments& call, const AttentionInput& in);
  InputInFloat64(const InputInFloat64&) = delete;

  reference::Input input;  // views of this object

 private:
  std::vector<double> k_, v_;
};

// Validates a call without a cache, as `function`, and returns its options.
[[nodiscard]] AttentionOptions validated_options(const char* function, const CallArguments& call);

// Copies upstream gradients of the output and of the statistics, or of their tangents.
[[nodiscard]] reference::GradientInput upstream_of(const CallArguments& call, std::int64_t wanted,
                                                   const TorchTensor& d_output,
                                                   const TorchTensor& d_statistics);

// Validates and computes a forward pass. in: shapes of the call, and its sequences.
[[nodiscard]] Results forward_in_float64(const CallArguments& call, const AttentionInput& in,
                                         std::int64_t wanted);

// Return the reference's results as tensors.
[[nodiscard]] GradientResults results_of(const reference::Gradients& from,
                                         const CallArguments& call,
                                         const std::array<bool, 3>& wants);
[[nodiscard]] TangentResults results_of(const reference::TangentFields& from,
                                        const CallArguments& call, std::int64_t wanted);

}  // namespace isentrope::stable
