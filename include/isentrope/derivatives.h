// Derivatives of attention beyond its gradient: the tangent pass (forward mode, a jvp), and the
// transpose of that pass with respect to the inputs.
//
// These two passes and attention_backward() give every derivative of first and second order:
//
//   jvp                    the tangent pass
//   its backward pass      attention_backward() with respect to the tangents, and the second-order
//                          pass with respect to the inputs
//   double backward        of attention_backward(), for gradients g_dq, g_dk, g_dv of its results:
//                          with respect to d_output the tangent pass with those as tangents, with
//                          respect to the inputs the second-order pass with the same d_output
//
// Shapes and types are those of attention.h. Memory grows with queries + keys. There are no
// derivatives for paged keys and 8-bit codes. A row that sees no key has derivatives of 0, and NaN
// stays in its rows, as in attention.h.
#pragma once

#include "isentrope/attention.h"
#include "isentrope/statistics.h"
#include "isentrope/tensor.h"
#include "isentrope/view.h"

namespace isentrope {

// Tangents of the inputs, with their shapes and any strides. A tangent without data is zero.
struct AttentionTangents {
  ConstTensor q{}, k{}, v{};      // of the input's type
  View<const float, 4> bias{};    // absent without a bias
  View<const float, 3> lambda{};  // [batch, heads, queries]: of the factor that d_lambda is for
  View<const float, 1> sinks{};   // absent without sinks
};

// Results of attention_forward() under the same input and options, and the tangents.
//
// Output and lse are always needed. The tangent of a statistic needs the results that its gradient
// needs: that of variance needs entropy and variance.
struct AttentionTangentInput {
  ConstTensor output{};
  ConstRowStatistics statistics{};
  AttentionTangents tangents{};
};

// Arrays that the tangent pass writes: tangents of the output and of the statistics with data.
// max_logit, lambda and support have none. If several keys of a row are largest, the tangent of
// max_probability is that of the first.
struct AttentionTangentOutput {
  Tensor output{};  // [batch, heads, queries, value_dim], f32 or of q's type; required
  RowStatistics statistics{};
};

// Computes the directional derivative of attention_forward() along the tangents.
//
// Products with tangents that are absent are skipped. Throws as attention_forward() does.
void attention_tangent(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionTangentInput& tangent, const AttentionTangentOutput& result);

// Input and results of the tangent pass, and the upstream gradients of these results.
//
// The tangents of output and lse are always needed. The gradient of a statistic's tangent needs the
// results that statistics.h lists, and the tangents of those but max_logit. Upstream gradients
// without data are zero.
struct AttentionSecondOrderInput {
  ConstTensor output{};
  ConstRowStatistics statistics{};
  AttentionTangents tangents{};
  ConstTensor output_tangent{};
  ConstRowStatistics statistic_tangents{};
  ConstTensor d_output{};  // gradient of the tangent of the output
  ConstRowStatistics d_statistics{};
};

// Computes the gradients of attention_tangent() with respect to the input, not to the tangents,
// which attention_backward() gives. As second derivatives are symmetric, they are also the
// tangents of what attention_backward() computes from constant upstream gradients. Requires the
// same results as attention_backward(). Throws as attention_forward() does.
void attention_second_order(const AttentionInput& input, const AttentionOptions& options,
                            const AttentionSecondOrderInput& second,
                            const AttentionGradients& result);

}  // namespace isentrope
