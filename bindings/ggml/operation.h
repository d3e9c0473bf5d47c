// Operation: a node of the kind GGML_OP_FLASH_ATTN_EXT, as arguments of the attention operator.
//
//   q      f32  [dim, queries, heads, batch]            k, v  [dim, keys, kv heads, batch], in cache
//   mask   f16  [keys, queries, 1 or heads, 1 or batch], -inf for hidden keys, optional
//   sinks  f32  [heads], optional                       result  f32 [value dim, heads, queries, batch]
//
// ggml lists extents from the innermost axis, and strides in bytes.
#pragma once

#include <vector>

#include "ggml.h"
#include "isentrope/attention.h"

namespace isentrope::ggml {

// Returns whether the operator can compute the node. Keys and values are both f32, f16 or bf16.
[[nodiscard]] bool supports(const ggml_tensor& node);

// Returns whether the node is large enough to repay a switch from the CPU's backend and back, for
// which threads join twice. Decode steps of few keys are not.
[[nodiscard]] bool repays_a_switch(const ggml_tensor& node);

struct Operation {
  AttentionInput input;
  AttentionOptions options;
  AttentionOutput output;
  std::vector<float> slopes;  // ALiBi's, to which the options refer

  explicit Operation(const ggml_tensor& node);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
};

}  // namespace isentrope::ggml
