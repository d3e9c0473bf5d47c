// Positions: a model encodes positions by rotating queries and keys or by a bias on logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tools/lab/model_config.h"

namespace isentrope::lab {

// Returns e^(i t theta_j), t < length, theta_j = 10000^(-2j / dim): complex [length, 1, dim / 2].
[[nodiscard]] at::Tensor rotary_table(std::int64_t length, std::int64_t dim);

// Rotates components 2j, 2j + 1 of x [batch, length, heads, dim] by angle j; others stay.
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& table);

// Returns the number of rotated dimensions of a head; 0 if none.
[[nodiscard]] std::int64_t rotary_dim(const ModelConfig& config);

inline constexpr std::int64_t kT5Buckets = 32;

// Returns T5's bucket of a distance key - query: half of the buckets for each side, or all for the
// past if causal. In each half, the first half of the buckets holds one distance each, later ones
// logarithmically more, and the last one all from `largest` on.
[[nodiscard]] std::int64_t t5_bucket(std::int64_t distance, bool causal, std::int64_t largest);

// Returns each head's slope: 2^(-8 h / heads), h = 1, 2, ..., for a power of two. Otherwise those
// of the next smaller power, then every other one of the next larger.
[[nodiscard]] std::vector<double> alibi_slopes(std::int64_t heads);

// Returns the bias on the logits of `length` tokens: [1, heads, length, length], or undefined
// without one. `t5_table` is [heads, kT5Buckets]; the result is differentiable in it.
[[nodiscard]] at::Tensor position_bias(const ModelConfig& config, const at::Tensor& t5_table,
                                       std::int64_t length);

}  // namespace isentrope::lab
