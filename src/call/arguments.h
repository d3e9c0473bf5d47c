// The arguments of the operator beside q, k and v, listed once, because front ends loop over them.
// A new argument is added here or to the parts of a mask, to its struct, and where it acts.
#pragma once

#include "isentrope/attention.h"
#include "src/call/mask_parts.h"

namespace isentrope {

// Calls visit(name, member) for each argument in the schema's order, tensors first. Names are those
// of error messages, the C interface and the schema (Python's keyword lambda aside).
template <typename Options, typename Visit>
void for_each_argument(Options& options, const Visit& visit) {
  auto& mask = options.mask;
  visit("lambda", options.lambda);
  visit("attn_mask", options.attn_mask);
  visit("bias", options.bias);
  visit("sinks", options.sinks);
  for (const MaskList& part : kMaskLists) visit(part.name, mask.*part.member);
  visit("dropout_seed", options.dropout_seed);
  visit("rule", options.rule);
  visit("causal", mask.causal);
  for (const MaskNumber& part : kMaskNumbers) visit(part.name, mask.*part.member);
  visit("soft_cap", options.soft_cap);
  visit("dropout_p", options.dropout_p);
}

// Same, with the arguments that C++ and C have and no other front end.
template <typename Options, typename Visit>
void for_each_host_argument(Options& options, const Visit& visit) {
  for_each_argument(options, visit);
  visit("bias_slopes", options.bias_slopes);
  visit("bias_hides", options.bias_hides);
}

}  // namespace isentrope
