// Examples: tokens as a model's input, and its targets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/lab/corpus.h"
#include "tools/lab/model_config.h"

namespace isentrope::lab {

// Fraction of tokens that BERT predicts: 80 % become the mask token, 10 % random, 10 % stay.
inline constexpr double kMaskedShare = 0.15;
inline constexpr double kMaskTokenShare = 0.8;
inline constexpr double kRandomTokenShare = 0.1;

struct Examples {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> positions;  // input positions with targets, increasing
  std::vector<std::int64_t> targets;    // token at each of them
};

// Masks tokens, all below `mask_token`. Token i uses the random numbers of counter first + i, so
// pieces equal the whole. At least one is masked unless the text is empty.
[[nodiscard]] Examples mask_tokens(std::span<const Token> tokens, Token mask_token,
                                   std::uint64_t seed, std::uint64_t first = 0);

// Returns next-token examples: each token predicts its successor, so n tokens give n - 1 inputs.
[[nodiscard]] Examples next_tokens(std::span<const Token> tokens);

// Returns the text tokens of a window of `length` inputs: one more if the last input predicts too.
[[nodiscard]] constexpr std::int64_t window_tokens(Objective objective, std::int64_t length) {
  return objective == Objective::causal ? length + 1 : length;
}

}  // namespace isentrope::lab
