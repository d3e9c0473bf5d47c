// Calls of isentrope::cuda, made through the C interface or as JAX's handlers make them.
#pragma once

#include "isentrope/attention.h"

// Open the device with these kernels, launch the call, and close the device. Throw Error with the
// message of a function that fails.
namespace isentrope::in_c {

void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream);
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream);

}  // namespace isentrope::in_c

// Same, but the device stays open. The arrays must be contiguous, and are taken in JAX's layout.
namespace isentrope::in_jax {

void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream);
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream);

}  // namespace isentrope::in_jax
