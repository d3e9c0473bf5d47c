// The one validator: every front end goes through it before anything is written.
#pragma once

#include "isentrope/attention.h"

namespace isentrope {

// Throw Error naming the argument, what is required of it and what was got. Types, shapes and
// numbers: nothing of an array is read, wherever it lies.
void validate_input(const char* function, const AttentionInput& input,
                    const AttentionOptions& options);
// What page table and documents hold, of input that validate_input() let through. Reads them, so it
// runs where they lie: in the host's memory.
void validate_tables(const char* function, const AttentionInput& input,
                     const AttentionOptions& options);
// Both of these, and what is written.
void validate_forward(const AttentionInput& input, const AttentionOptions& options,
                      const AttentionOutput& output);
void validate_backward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
