// Attention with a length rule, and the statistics of every row.
//
//   z_ij = lambda_i q_i.k_j     p_i = softmax(z_i)     o_i = sum_j p_ij v_j
//
// Shapes: q is [batch, heads, queries, dim], k is [batch, heads, keys, dim], v is [batch, heads, keys,
// value_dim]. Any strides. Row statistics are [batch, heads, queries], in nats.
#pragma once

#include <cstdint>

#include "isentrope/mask.h"
#include "isentrope/parallel.h"
#include "isentrope/scale_rule.h"
#include "isentrope/view.h"

namespace isentrope {

struct AttentionInput {
  View<const float, 4> q, k, v;
};

struct AttentionOptions {
  ScaleRule rule;
  Mask mask;
  ParallelFor parallel_for = run_serially;
};

// What the operator tells of each row. Views without data are not computed. A row that admits no key
// has lse -inf, max_logit -inf and 0 everywhere else.
struct RowStatistics {
  View<float, 3> lse;                 // ln sum_j e^z_j
  View<float, 3> entropy;             // -sum p ln p, in [0, ln support]
  View<float, 3> collision;           // sum p^2, in [1 / support, 1]
  View<float, 3> max_logit;           // largest admitted z_j
  View<float, 3> variance;            // of z under p: the varentropy
  View<float, 3> lambda;              // the softmax scale the row was given
  View<std::int64_t, 3> support;      // admitted keys
};

struct AttentionOutput {
  View<float, 4> output;  // [batch, heads, queries, value_dim]
  RowStatistics statistics;
};

// Throws Error before anything is written when a shape is wrong.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output);

// Gradients of a scalar with respect to what the forward pass returned, and the results the backward
// pass takes up again. Views without data count as zero; output and lse of the forward pass are needed
// always, entropy, collision and variance only beside their gradients.
struct AttentionGradientInput {
  View<const float, 4> output;                              // of the forward pass
  View<const float, 3> lse, entropy, collision, variance;   // of the forward pass
  View<const float, 4> d_output;
  View<const float, 3> d_lse, d_entropy, d_collision, d_variance;
};

struct AttentionGradients {
  View<float, 4> dq, dk, dv;
};

// Recomputes the weights tile by tile: memory grows with queries + keys, never with their product.
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
