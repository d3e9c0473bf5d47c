// From a row's state and value sums to what the caller asked for.
#pragma once

#include "src/cpu/kernels.h"

namespace isentrope {

// Writes output and statistics of one row. sums: sum_j e^(z_j - max) v_j.
void write_results(const ForwardCall& call, std::int64_t batch, std::int64_t head,
                   std::int64_t query, const RowState& state, const float* sums);

// The softmax scale of a row with so many keys in its support. One for which the rule counts no key
// has none, whatever the scale table holds: it is asked where the support is empty, and only there.
[[nodiscard]] float lambda_of(const ForwardCall& call, std::int64_t batch, std::int64_t head,
                              std::int64_t query, std::int64_t support);

// do.output of one row.
[[nodiscard]] double output_product(const AttentionGradientInput& gradient, std::int64_t batch,
                                    std::int64_t head, std::int64_t query);

// Merges the splits of the keys of one key head, in order, and writes its rows' results.
void merge_splits(const ForwardCall& call, std::int64_t index);

}  // namespace isentrope
