// Masked language modelling as BERT does it: of 15 % of the tokens, 80 % become the mask token, 10
// % a random token, and 10 % stay as they are. The model predicts them all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/corpus.h"

namespace isentrope::lab {

inline constexpr double kMaskedShare = 0.15;
inline constexpr double kMaskTokenShare = 0.8;
inline constexpr double kRandomTokenShare = 0.1;

struct MaskedTokens {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> positions;  // of the tokens to predict, rising
  std::vector<std::int64_t> targets;    // what they were
};

// Token i draws the random numbers of counter first + i, so that a text masked in pieces is masked
// as it would be in one. Tokens are below `mask_token`. Of a text that is not empty at least one
// token is masked.
[[nodiscard]] MaskedTokens mask_tokens(std::span<const Token> tokens, Token mask_token,
                                       std::uint64_t seed, std::uint64_t first = 0);

}  // namespace isentrope::lab
