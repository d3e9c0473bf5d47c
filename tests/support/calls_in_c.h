// The passes of isentrope's C++ interface, computed through its C interface.
#pragma once

#include "tools/check/run.h"

namespace isentrope::in_c {

// Throw Error with the message of a function that fails. Tasks run on the library's own threads.
[[nodiscard]] check::Passes passes();

// Open the device with these kernels, launch the call, and close the device.
void forward_on_device(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream);
void backward_on_device(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream);

}  // namespace isentrope::in_c
