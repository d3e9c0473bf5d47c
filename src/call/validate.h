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
// Shapes, types and places of what is written, of input that validate_input() let through. Nothing
// of an array is read.
void validate_output(const AttentionInput& input, const AttentionOptions& options,
                     const AttentionOutput& output);
// All of these.
void validate_forward(const AttentionInput& input, const AttentionOptions& options,
                      const AttentionOutput& output);
// The first two, and what is read and written besides.
void validate_backward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionGradientInput& gradient, const AttentionGradients& result);

}  // namespace isentrope
