// Generates problems from a seed, so that two numbers name a set of thousands.
#pragma once

#include <cstdint>

#include "tools/check/problem.h"

namespace isentrope::check {

// Largest size of a problem, in multiplications of one forward pass.
inline constexpr std::int64_t kSmallProblem = 400'000;

// Returns problem `index` of the set that `seed` names. Lengths are around the edges of lanes,
// panels, row tiles, blocks and splits, primes, one key, or no rows. Types, masks, rules and
// options are combined at random, with scales from 1e-6 to 1e6.
[[nodiscard]] Problem generated_problem(std::uint64_t seed, std::int64_t index,
                                        std::int64_t most_work = kSmallProblem);

}  // namespace isentrope::check
