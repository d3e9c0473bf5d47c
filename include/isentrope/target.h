// Target: the instruction set the kernels run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isentrope {

// Names as Highway has them, best first: "AVX3_DL", "AVX3", "AVX2", "SSE4", "SSSE3", "EMU128". Only
// those that were compiled and that this CPU runs.
[[nodiscard]] std::vector<std::string> supported_targets();

// The one in use: the best, unless use_target() said otherwise.
[[nodiscard]] std::string active_target();

// Runs the kernels on the named target from now on, in every thread. Not to be called while a
// kernel runs. Throws Error naming the supported targets when the name is not one of them.
void use_target(std::string_view name);

}  // namespace isentrope
