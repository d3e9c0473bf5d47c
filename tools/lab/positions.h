// Positions: a model encodes positions by rotating queries and keys or by a bias on logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tools/lab/model_config.h"

namespace isentrope::lab {

// Returns e^(i t theta_j) for positions t < length and the dim / 2 frequencies theta_j = 10000^(-2j
// / dim): complex [length, 1, dim / 2].
[[nodiscard]] at::Tensor rotary_table(std::int64_t length, std::int64_t dim);

// Rotates x [batch, length, heads, dim]: components 2j and 2j + 1 by the table's angle j.
// Components past the table's angles are unchanged.
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& table);

// Returns the number of rotated dimensions of a head; 0 if none.
[[nodiscard]] std::int64_t rotary_dim(const ModelConfig& config);

inline constexpr std::int64_t kT5Buckets = 32;

// Returns T5's bucket of a distance key - query: half of the buckets for each side, or all for the
// past if causal. In each half, the first half of the buckets holds one distance each, later ones
// logarithmically more, and the last one all from `largest` on.
[[nodiscard]] std::int64_t t5_bucket(std::int64_t distance, bool causal, std::int64_t largest);

// Returns the slope of each head: 2^(-8 h / heads) for h = 1, 2, ..., heads if heads is a power of
// two. Otherwise those of the next smaller power, and every other one of the next larger power for
// the rest.
[[nodiscard]] std::vector<double> alibi_slopes(std::int64_t heads);

// Returns the bias on the logits of `length` tokens: [1, heads, length, length], or undefined
// without one. `t5_table` is [heads, kT5Buckets]; the result is differentiable in it.
[[nodiscard]] at::Tensor position_bias(const ModelConfig& config, const at::Tensor& t5_table,
                                       std::int64_t length);

}  // namespace isentrope::lab
