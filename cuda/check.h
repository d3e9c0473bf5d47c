// What is asked of a call on a device, before anything is started.
#pragma once

#include "isentrope/cuda/attention.h"

namespace isentrope::cuda {

// Throws Error where the validator of all front ends does, where an argument is of those that no
// kernel was compiled for, and where an array does not lie on the device. The device's context must
// be the thread's. Reads nothing of an array.
void check_call(const AttentionInput& input, const AttentionOptions& options,
                const AttentionOutput& output, int ordinal);

}  // namespace isentrope::cuda
