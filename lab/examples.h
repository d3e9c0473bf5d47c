// Examples: tokens as a model sees them, and what it has to predict.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/corpus.h"
#include "lab/model_config.h"

namespace isentrope::lab {

// Masked language modelling as BERT does it: of 15 % of the tokens, 80 % become the mask token, 10
// % a random token, and 10 % stay as they are. The model predicts them all.
inline constexpr double kMaskedShare = 0.15;
inline constexpr double kMaskTokenShare = 0.8;
inline constexpr double kRandomTokenShare = 0.1;

struct Examples {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> positions;  // of the inputs where there is something to predict, rising
  std::vector<std::int64_t> targets;    // what it is
};

// Token i draws the random numbers of counter first + i, so that a text masked in pieces is masked
// as it would be in one. Tokens are below `mask_token`. Of a text that is not empty at least one
// token is masked.
[[nodiscard]] Examples mask_tokens(std::span<const Token> tokens, Token mask_token,
                                   std::uint64_t seed, std::uint64_t first = 0);

// Every token predicts the one after it: of n tokens n - 1 are inputs.
[[nodiscard]] Examples next_tokens(std::span<const Token> tokens);

// Tokens of text that a window of `length` inputs takes: one more where the last predicts too.
[[nodiscard]] constexpr std::int64_t window_tokens(Objective objective, std::int64_t length) {
  return objective == Objective::causal ? length + 1 : length;
}

}  // namespace isentrope::lab
