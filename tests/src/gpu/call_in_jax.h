// Calls of isentrope::cuda, made as JAX's handlers make them.
#pragma once

#include "isentrope/attention.h"

namespace isentrope::in_jax {

// Open the device with these kernels, which stays open, and launch the call. The arrays must be
// contiguous, and are taken in JAX's layout. Throw Error with the message of what fails.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream);
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream);

}  // namespace isentrope::in_jax
