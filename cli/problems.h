// Problems as users write them.
#pragma once

#include <string_view>

#include "check/problem.h"

namespace isentrope::cli {

// Throws Error unless this machine has the memory for the problem's tensors and those of its
// reference.
void require_memory(const check::Problem& problem);

// The problem of a line that this machine can run. Throws Error for any other.
[[nodiscard]] check::Problem problem_of(std::string_view line);

}  // namespace isentrope::cli
