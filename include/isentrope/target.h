// Target: the instruction set the kernels run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isentrope {

// Highway's names, best first: "AVX3", "AVX2", "SSE4", "SCALAR". Only those that were compiled and
// that this CPU runs.
[[nodiscard]] std::vector<std::string> supported_targets();

// The target in use: the best, unless use_target() chose another.
[[nodiscard]] std::string active_target();

// Runs the kernels on the named target from now on, in every thread. Do not call it while a kernel
// runs. Throws Error that lists the supported targets if the name is not one of them.
void use_target(std::string_view name);

}  // namespace isentrope
