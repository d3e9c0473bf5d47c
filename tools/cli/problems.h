#pragma once

#include <string_view>

#include "tools/check/problem.h"

namespace isentrope::cli {

// Throws Error unless this machine has memory for the problem's tensors and its reference.
void require_memory(const check::Problem& problem);

// Parses a line into a problem that this machine can run. Throws Error otherwise.
[[nodiscard]] check::Problem problem_of(std::string_view line);

}  // namespace isentrope::cli
