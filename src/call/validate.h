// The one validator: every front end goes through it before anything is written.
#pragma once

#include "isentrope/attention.h"

namespace isentrope {

// Throw Error naming the argument, what is required of it and what was got.
void validate_input(const char* function, const AttentionInput& input,
                    const AttentionOptions& options);
void validate_forward(const AttentionInput& input, const AttentionOptions& options,
                      const AttentionOutput& output);
void validate_backward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
