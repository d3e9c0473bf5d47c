// Calls of isentrope::cuda, made through the C interface.
#pragma once

#include "isentrope/attention.h"

namespace isentrope::in_c {

// Open the device with these kernels, launch the call, and close the device. Throw Error with the
// message of a function that fails.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream);
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream);

}  // namespace isentrope::in_c
