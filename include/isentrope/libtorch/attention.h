// Isentrope's attention on torch tensors, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"

namespace isentrope {

// The row statistics are [batch, heads, queries], f32; support is int64. Those that statistics.h
// calls differentiable are so, as output is.
struct TorchAttention : StatisticFields<at::Tensor> {
  at::Tensor output;  // [batch, heads, queries, value_dim]
};

// What a call may have beside its rule. Tensors are f32 and differentiable, and broadcast: each of
// their extents is 1 or that of the call.
struct TorchOptions {
  Causal causal = Causal::none;
  std::int64_t window_left = -1, window_right = -1;  // as in Mask
  at::Tensor bias{};    // [batch, heads, queries, keys], added to the logits
  at::Tensor lambda{};  // [batch, heads, queries]: the scale of each row, instead of the rule's
};

// q, k, v: f32 CPU tensors [batch, heads, queries | keys, dim] of any strides. Runs on torch's
// threads. Throws isentrope::Error naming the argument when one does not fit.
TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ScaleRule& rule, const TorchOptions& options = {});

}  // namespace isentrope
