// Converts a row's state and value sums to the requested results.
#pragma once

#include "src/cpu/kernels.h"

namespace isentrope {

// Writes output and statistics of one row. sums: sum_j e^(z_j - max) v_j.
void write_results(const ForwardCall& call, std::int64_t batch, std::int64_t head,
                   std::int64_t query, const RowState& state, const float* sums);

// Returns the softmax scale of a row with `support` keys; 0 if the rule counts no key, whatever the
// scale table holds. The rule is evaluated only if the support is 0.
[[nodiscard]] float lambda_of(const ForwardCall& call, std::int64_t batch, std::int64_t head,
                              std::int64_t query, std::int64_t support);

// Returns do.output of one row, or that with the output's tangent.
[[nodiscard]] double output_product(const ConstTensor& output, const ConstTensor& d_output,
                                    std::int64_t batch, std::int64_t head, std::int64_t query);

// Merges the splits of the keys of one key head, in order, and writes its rows' results.
void merge_splits(const ForwardCall& call, std::int64_t index);

}  // namespace isentrope
