// Isentrope's attention on torch tensors, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "isentrope/mask.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"

namespace isentrope {

// The row statistics are [batch, heads, queries], f32; support is int64. Those that statistics.h
// calls differentiable are so, as output is.
struct TorchAttention : StatisticFields<at::Tensor> {
  at::Tensor output;  // [batch, heads, queries, value_dim]
};

// q, k, v: f32 CPU tensors [batch, heads, queries | keys, dim] of any strides. Runs on torch's
// threads. Throws isentrope::Error naming the argument when one does not fit.
TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ScaleRule& rule, Causal causal = Causal::none);

}  // namespace isentrope
