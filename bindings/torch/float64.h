// Calls in float64, which the reference computes: slow, on one thread, and as exact as double.
#pragma once

#include <array>
#include <cstdint>

#include "bindings/torch/call.h"
#include "isentrope/view.h"

namespace isentrope::stable {

// Shapes and types of the call, as validation wants them: float32, whatever they are. Nothing of
// its arrays may be read.
[[nodiscard]] AttentionInput shapes_of(const CallArguments& call);

// As the operators of these names, with what they read from the stack behind the call.
void attention_in_float64(const CallArguments& call, std::int64_t wanted, StableIValue* stack);
void attention_backward_in_float64(const CallArguments& call, std::int64_t wanted,
                                   const TorchTensor& d_output, const TorchTensor& d_statistics,
                                   const std::array<bool, 3>& wants, StableIValue* stack);
void decode_in_float64(const CallArguments& call, const View<const std::int32_t, 2>& block_table,
                       const View<const std::int64_t, 1>& keys, std::int64_t wanted,
                       StableIValue* stack);

}  // namespace isentrope::stable
