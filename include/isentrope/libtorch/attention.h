// Isentrope's attention on torch tensors, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"

namespace isentrope {

// The row statistics are [batch, heads, queries], f32; support is int64. Output and the statistics
// that statistics.h calls differentiable have gradients.
struct TorchAttention : StatisticFields<at::Tensor> {
  at::Tensor output;  // [batch, heads, queries, value_dim]
};

// Options of a call besides its rule. Tensors are f32 and differentiable, and they broadcast: each
// of their extents is 1 or that of the call.
struct TorchOptions {
  Causal causal = Causal::none;
  std::int64_t window_left = -1, window_right = -1;  // as in Mask
  at::Tensor bias{};    // [batch, heads, queries, keys], added to the logits
  at::Tensor lambda{};  // [batch, heads, queries]: the scale of each row, instead of the rule's
};

// q, k, v: f32 CPU tensors [batch, heads, queries | keys, dim] with any strides. Runs on torch's
// threads. Throws isentrope::Error that names the argument if one is invalid.
TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ScaleRule& rule, const TorchOptions& options = {});

}  // namespace isentrope
