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

// The sequences of a paged cache, with keys and values gathered from their pages.
class CacheInFloat64 {
 public:
  // in: shapes of the call, and its sequences.
  CacheInFloat64(const CallArguments& call, const AttentionInput& in);
  CacheInFloat64(const CacheInFloat64&) = delete;

  reference::Input input;  // views of this object

 private:
  std::vector<double> k_, v_;
};

// Same as the operators of these names; they read their further arguments from the stack.
void attention_in_float64(const CallArguments& call, std::int64_t wanted, StableIValue* stack);
void attention_backward_in_float64(const CallArguments& call, std::int64_t wanted,
                                   const TorchTensor& d_output, const TorchTensor& d_statistics,
                                   const std::array<bool, 3>& wants, StableIValue* stack);
void attention_tangent_in_float64(const CallArguments& call, std::int64_t wanted,
                                  const TangentArguments& tangents, StableIValue* stack);
void attention_second_tangent_in_float64(const CallArguments& call, std::int64_t wanted,
                                         const TangentArguments& first,
                                         const TangentArguments& second, StableIValue* stack);
void attention_second_order_in_float64(const CallArguments& call, std::int64_t wanted,
                                       const TangentArguments& tangents,
                                       const TorchTensor& d_output, const TorchTensor& d_statistics,
                                       const std::array<bool, 3>& wants, StableIValue* stack);
// in: shapes of the call, and its sequences.
void decode_in_float64(const CallArguments& call, const AttentionInput& in, std::int64_t wanted,
                       StableIValue* stack);

}  // namespace isentrope::stable
