// The arguments of the operator beside q, k and v, listed once. Front ends loop over them, so a new
// one stands here, in the struct it belongs to and where it acts.
#pragma once

#include "isentrope/attention.h"

namespace isentrope {

// Calls visit(name, member) for each argument, in the order of the operators' schema: arrays first.
// Names are those of error messages, of the C interface and, but for Python's keyword lambda, of
// the schema.
template <typename Options, typename Visit>
void for_each_argument(Options& options, const Visit& visit) {
  auto& mask = options.mask;
  visit("lambda", options.lambda);
  visit("attn_mask", options.attn_mask);
  visit("bias", options.bias);
  visit("sinks", options.sinks);
  visit("key_begin", mask.key_begin);
  visit("key_end", mask.key_end);
  visit("cu_seqlens_q", mask.cu_seqlens_q);
  visit("cu_seqlens_k", mask.cu_seqlens_k);
  visit("rule", options.rule);
  visit("causal", mask.causal);
  visit("window_left", mask.window_left);
  visit("window_right", mask.window_right);
  visit("query_offset", mask.query_offset);
  visit("key_offset", mask.key_offset);
  visit("sequence_keys", mask.sequence_keys);
  visit("soft_cap", options.soft_cap);
}

}  // namespace isentrope
