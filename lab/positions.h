// Positions: how a model tells where keys are, by turning queries and keys or by a bias on logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lab/model_config.h"

namespace isentrope::lab {

// e^(i t theta_j) for positions t < length and the dim / 2 frequencies theta_j = 10000^(-2j / dim):
// complex [length, 1, dim / 2].
[[nodiscard]] at::Tensor rotary_table(std::int64_t length, std::int64_t dim);

// x is [batch, length, heads, dim]; components 2j and 2j + 1 turn by the table's angle j. A table
// of fewer angles leaves the components behind its last as they are.
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& table);

// Dimensions of a head that turn; 0 when none does.
[[nodiscard]] std::int64_t rotary_dim(const ModelConfig& config);

inline constexpr std::int64_t kT5Buckets = 32;

// T5's bucket of a distance key - query: half of the buckets for each side, or all for the past
// when causal. In each half of the buckets, the first half holds one distance each, the others
// logarithmically more, and the last all from `largest` on.
[[nodiscard]] std::int64_t t5_bucket(std::int64_t distance, bool causal, std::int64_t largest);

// The slope of each head: 2^(-8 h / heads) for h = 1, 2, ..., heads where heads is a power of two;
// otherwise those of the next smaller one, and every other of the next larger one for the rest.
[[nodiscard]] std::vector<double> alibi_slopes(std::int64_t heads);

// What is added to the logits of `length` tokens: [1, heads, length, length], or undefined without
// a bias. `t5_table` is [heads, kT5Buckets]; the result is differentiable in it.
[[nodiscard]] at::Tensor position_bias(const ModelConfig& config, const at::Tensor& t5_table,
                                       std::int64_t length);

}  // namespace isentrope::lab
