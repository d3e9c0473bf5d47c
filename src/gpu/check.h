// Checks a call on a device before anything is started.
#pragma once

#include "isentrope/cuda/attention.h"

namespace isentrope::cuda {

// Throws Error where the validator of all front ends does. Throws Error for arguments that no
// kernel is compiled for, and for arrays that are not on the device. The device's context must be
// current in this thread. Does not read arrays.
void check_forward(const AttentionInput& input, const AttentionOptions& options,
                   const AttentionOutput& output, int ordinal);
void check_backward(const AttentionInput& input, const AttentionOptions& options,
                    const AttentionGradientInput& gradient, const AttentionGradients& result,
                    int ordinal);

}  // namespace isentrope::cuda
