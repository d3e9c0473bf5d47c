// Random numbers as a function of (seed, stream, counter): any batch or mask by itself, no state.
#pragma once

#include <cstdint>

namespace isentrope::lab {

// Purpose of a random stream. Streams of one seed are independent.
enum class Stream : std::uint64_t { window, select, replace, token, weights, dropout };

// Maps 64 bits one to one, scattering neighbours (the finaliser of SplitMix64).
[[nodiscard]] constexpr std::uint64_t scatter(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, Stream stream,
                                                  std::uint64_t counter) {
  return scatter(scatter(scatter(seed) ^ static_cast<std::uint64_t>(stream)) ^ counter);
}

// Returns a number in [0, 1), a multiple of 2^-53.
[[nodiscard]] constexpr double random_unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Returns an integer in [0, bound), 0 < bound < 2^53, with a bias below bound / 2^53.
[[nodiscard]] constexpr std::int64_t random_below(std::uint64_t bits, std::int64_t bound) {
  return static_cast<std::int64_t>(random_unit(bits) * static_cast<double>(bound));
}

}  // namespace isentrope::lab
