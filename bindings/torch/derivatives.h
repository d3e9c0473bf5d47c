// Arguments and results that the operators of the tangent pass and of the second-order pass share.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "bindings/torch/call.h"
#include "bindings/torch/results.h"
#include "isentrope/derivatives.h"
#include "isentrope/reference.h"

namespace isentrope::stable {

// Tangents of a call's arguments, read from the stack in the order of the schema.
struct TangentArguments {
  explicit TangentArguments(Arguments& from)
      : q(from), k(from), v(from), bias(from), lambda(from), sinks(from) {}

  // Return views of the tensors. Throw Error for a wrong type or rank.
  [[nodiscard]] AttentionTangents views() const;
  [[nodiscard]] reference::Input views_in_float64() const;

  const OptionalTensor q, k, v, bias, lambda, sinks;
};

// Tangents of the results: of the output, and of the requested statistics in one tensor, which
// begins as zeros because some have no derivative.
struct TangentResults {
  TangentResults(const CallArguments& call, std::int64_t wanted);

  TorchTensor output, statistics;
};

inline void put(TangentResults results, StableIValue* stack) {
  put(std::array{std::move(results.output), std::move(results.statistics)}, stack);
}

}  // namespace isentrope::stable
