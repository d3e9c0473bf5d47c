#include "tools/lab/examples.h"

#include <numeric>

#include "tools/lab/random.h"

namespace isentrope::lab {
namespace {

std::int64_t replacement(Token token, Token mask_token, std::uint64_t seed, std::uint64_t counter) {
  const double fate = random_unit(random_bits(seed, Stream::replace, counter));
  if (fate < kMaskTokenShare) return mask_token;
  if (fate < kMaskTokenShare + kRandomTokenShare) {
    return random_below(random_bits(seed, Stream::token, counter), mask_token);
  }
  return token;
}

}  // namespace

Examples mask_tokens(std::span<const Token> tokens, Token mask_token, std::uint64_t seed,
                     std::uint64_t first) {
  Examples masked{{tokens.begin(), tokens.end()}, {}, {}};
  const auto mask = [&](std::size_t i) {
    masked.positions.push_back(static_cast<std::int64_t>(i));
    masked.targets.push_back(tokens[i]);
    masked.inputs[i] = replacement(tokens[i], mask_token, seed, first + i);
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (random_unit(random_bits(seed, Stream::select, first + i)) < kMaskedShare) mask(i);
  }
  if (masked.positions.empty() && !tokens.empty()) mask(scatter(first) % tokens.size());
  return masked;
}

Examples next_tokens(std::span<const Token> tokens) {
  if (tokens.empty()) return {};
  Examples next{{tokens.begin(), tokens.end() - 1}, {}, {tokens.begin() + 1, tokens.end()}};
  next.positions.resize(next.inputs.size());
  std::iota(next.positions.begin(), next.positions.end(), 0);
  return next;
}

}  // namespace isentrope::lab
