// Arguments and results that the operators of the tangent pass and of the second-order pass share.
#pragma once

#include <cstdint>

#include "bindings/torch/call.h"
#include "bindings/torch/results.h"
#include "isentrope/derivatives.h"
#include "isentrope/reference.h"

namespace isentrope::stable {

// Tangents of a call's arguments, read from the stack in the order of the schema.
struct TangentArguments {
  explicit TangentArguments(Arguments& from)
      : q(from.optional_tensor()),
        k(from.optional_tensor()),
        v(from.optional_tensor()),
        bias(from.optional_tensor()),
        lambda(from.optional_tensor()),
        sinks(from.optional_tensor()) {}

  // Return views of the tensors. Throw Error for a wrong type or rank.
  [[nodiscard]] AttentionTangents views() const;
  [[nodiscard]] reference::Input views_in_float64() const;

  const TorchTensor q, k, v, bias, lambda, sinks;
};

// Tangents of the results: of the output, and of the requested statistics in one tensor, which
// begins as zeros because some have no derivative.
struct TangentResults {
  TangentResults(const CallArguments& call, std::int64_t wanted);
  void put(StableIValue* stack);

  TorchTensor output, statistics;
};

}  // namespace isentrope::stable
