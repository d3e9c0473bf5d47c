// Target: the instruction set the kernels run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isentrope {

// Returns the instruction sets that were compiled and that this CPU runs, best first. Names are
// those of Highway, such as "AVX3", "AVX2" and "SSE4".
[[nodiscard]] std::vector<std::string> supported_targets();

// Returns the target in use: the best, unless use_target() chose another.
[[nodiscard]] std::string active_target();

// Selects the target of all later kernels, in every thread. Do not call it while a kernel runs.
// Throws Error that lists the supported targets if the name is not one of them.
void use_target(std::string_view name);

}  // namespace isentrope
