// A deterministic text for tests of the laboratory, with patterns to learn.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tools/lab/random.h"

namespace isentrope::lab {

// Returns lines of words with at least `characters` characters.
inline std::string make_text(std::size_t characters) {
  constexpr std::array<std::string_view, 12> kWords = {"row",   "key",    "query", "value",
                                                       "scale", "length", "mass",  "focus",
                                                       "seen",  "tile",   "the",   "naïve"};
  std::string text;
  for (std::uint64_t i = 0; text.size() < characters; ++i) {
    const std::uint64_t bits = random_bits(7, Stream::token, i);
    text += kWords[static_cast<std::size_t>(random_below(bits, kWords.size()))];
    text += i % 9 == 8 ? '\n' : ' ';
  }
  return text;
}

}  // namespace isentrope::lab
