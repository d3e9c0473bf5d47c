#pragma once

#include <cstdint>
#include <functional>

namespace isentrope {

// Runs `body` for every task below `tasks` on torch's threads, and throws what one of them threw.
// This asks the function inside libtorch: at::parallel_for is a template, which is a serial loop in
// every source that is compiled without OpenMP.
void run_on_torch_threads(std::int64_t tasks, const std::function<void(std::int64_t)>& body);

}  // namespace isentrope
