// Problems from a seed, so that a set of thousands is named by two numbers.
#pragma once

#include <cstdint>

#include "check/problem.h"

namespace isentrope::check {

// How large a problem may get, in multiplications of one forward pass.
inline constexpr std::int64_t kSmallProblem = 400'000;

// Problem `index` of the set that `seed` names: lengths around the edges of lanes, panels, row
// tiles, blocks and splits, primes, one key, no rows; every type, mask, rule and option, combined
// at random; scales from 1e-6 to 1e6.
[[nodiscard]] Problem generated_problem(std::uint64_t seed, std::int64_t index,
                                        std::int64_t most_work = kSmallProblem);

}  // namespace isentrope::check
