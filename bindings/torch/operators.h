// Kernels as torch calls them: arguments on the stack are replaced by results.
#pragma once

#include <cstdint>

#include "bindings/torch/shim.h"

namespace isentrope::stable {

// Operators on tensors; library.cc has their schemas.
void attention(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void attention_backward(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void attention_tangent(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void attention_second_order(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void attention_second_tangent(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
// Operators on q, k, v, a rule and a causal mask only.
void attention_plain(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void attention_backward_plain(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void decode(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void decode_codes(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
// Also returns the weights that keys receive. Not in float64.
void decode_received(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void received(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void weights_at(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void weights_at_paged(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void received_paged(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void write_cache(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void quantize(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void row_lengths(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void keys_seen(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void check_call(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

// Returns the operators' common arguments besides q, k and v, in the order of the schema: [{"name":
// ..., "default": ..., "axes": ["batch", ...], "mask": whether it is a part of the mask}, ...].
void call_arguments(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

// Returns the list of statistics, in the order of the bits of `wanted`; the last one counts.
// [{"name": ..., "differentiable": ..., "needs": [...], "sums": whether it needs sums besides the
// weights', "merge": name in the enumeration Merge}, ...].
void statistics(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

// Returns decisions of a call on a device, by the names of src/call/device_plan.h. given: arguments
// besides q, k and v that are no defaults, {"name": number}; any number for a tensor.
void device_plan(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
// Returns the number of shares of keys: src/call/device_plan.h.
void shares_of(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

// Operators on rules.
void rule_text(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_to_json(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_from_json(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_lambda(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_heads(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_of_heads(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_reads_length(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_reads_position(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_table(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void rule_catalogue(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);
void model_scale(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

}  // namespace isentrope::stable
