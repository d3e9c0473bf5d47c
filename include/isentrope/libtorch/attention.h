// Isentrope's attention on torch tensors, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"

namespace isentrope {

// Results of torch_attention(): row statistics f32 [batch, heads, queries], support int64. Output
// and differentiable statistics have gradients of first and second order. A third throws Error, as
// does create_graph = true in a double backward.
struct TorchAttention : StatisticFields<at::Tensor> {
  at::Tensor output;  // [batch, heads, queries, value_dim]
};

// Options of a call besides its rule. Tensors are f32 and differentiable, and they broadcast: each
// extent is 1 or that of the call. Undefined tensors are not used.
struct TorchOptions {
  Causal causal = Causal::none;
  std::int64_t window_left = -1, window_right = -1;  // as in Mask
  at::Tensor bias{};    // [batch, heads, queries, keys], added to the logits
  at::Tensor lambda{};  // [batch, heads, queries]: softmax scale of each row, instead of the rule's
};

// Computes attention and its row statistics on torch's threads, with autograd.
//
// q, k, v: f32 CPU tensors with any strides, [batch, heads, queries, dim], [batch, kv_heads, keys,
// dim] and [batch, kv_heads, keys, value_dim]; kv_heads divides heads. Edge cases are those of
// isentrope/attention.h. Throws isentrope::Error that names the argument if one is invalid.
TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ScaleRule& rule, const TorchOptions& options = {});

}  // namespace isentrope
