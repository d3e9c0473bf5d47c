// Validation that every front end calls before anything is written.
#pragma once

#include "isentrope/attention.h"

namespace isentrope {

// Checks types, shapes and numbers. Throws Error naming the argument, the requirement and the
// value. Does not read arrays, which may be on a device.
void validate_input(const char* function, const AttentionInput& input,
                    const AttentionOptions& options);
// Checks page tables and documents in host memory, after validate_input().
void validate_tables(const char* function, const AttentionInput& input,
                     const AttentionOptions& options);
// Checks shapes, types and overlap of outputs, after validate_input(). Does not read arrays.
void validate_output(const AttentionInput& input, const AttentionOptions& options,
                     const AttentionOutput& output);
// Runs all checks above.
void validate_forward(const AttentionInput& input, const AttentionOptions& options,
                      const AttentionOutput& output);
// Runs the first, and checks all else of the backward pass. Does not read arrays.
void validate_gradients(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result);
// Runs the check above, and that of tables.
void validate_backward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
