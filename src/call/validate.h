// Validation that every front end calls before anything is written.
#pragma once

#include <string_view>

#include "isentrope/attention.h"
#include "isentrope/derivatives.h"
#include "isentrope/key_statistics.h"
#include "src/call/array_overlaps.h"

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

void validate_tangent(const AttentionInput& input, const AttentionOptions& options,
                      const AttentionTangentInput& tangent, const AttentionTangentOutput& result);
void validate_second_order(const AttentionInput& input, const AttentionOptions& options,
                           const AttentionSecondOrderInput& second,
                           const AttentionGradients& result);

// Throws Error unless table, lengths and options fit a call. Does not read arrays.
void check_pages(const Checks& check, const AttentionInput& input, const AttentionOptions& options);

// Throws Error unless page numbers, numbers of keys and beginnings of queries are valid. Reads the
// arrays, in host memory, after check_pages().
void check_page_contents(const Checks& check, const AttentionInput& input);

// Adds all arrays of the input and the options.
void add_inputs(ArrayOverlaps& check, const AttentionInput& input, const AttentionOptions& options);
// Does what validate_input() does, for calls with derivatives, which paged keys and 8-bit codes do
// not have. Adds the arrays too.
void check_differentiable(ArrayOverlaps& check, const AttentionInput& input,
                          const AttentionOptions& options);
// Checks results of the forward pass, of which derivatives of the statistics with data need some:
// always output and lse.
void check_results(ArrayOverlaps& check, const AttentionInput& input, const ConstTensor& output,
                   const ConstRowStatistics& statistics, const ConstRowStatistics& derivatives);
// Checks upstream gradients of output and statistics, or of their tangents.
void check_upstream(ArrayOverlaps& check, const AttentionInput& input, const ConstTensor& d_output,
                    const ConstRowStatistics& d_statistics);
// Checks the gradients that are written.
void check_gradients(ArrayOverlaps& check, const AttentionInput& input,
                     const AttentionGradients& result);
// Returns whether derivatives of the statistics with data need a result of the forward pass.
[[nodiscard]] bool needs_result(const ConstRowStatistics& derivatives, std::string_view result);

// Returns the input with keys in the place of values, which key statistics do not read.
[[nodiscard]] AttentionInput without_values(const AttentionInput& input);
// Runs all checks of a call of received(), after without_values().
void validate_received(const AttentionInput& input, const AttentionOptions& options,
                       const KeyStatisticsRows& rows, const View<float, 3>& result);
// Same of weights_at().
void validate_weights_at(const AttentionInput& input, const AttentionOptions& options,
                         const View<const float, 3>& lse, const View<const std::int64_t, 4>& keys,
                         const KeyWeights& result);

}  // namespace isentrope
