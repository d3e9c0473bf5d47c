#pragma once

#include <cstdint>
#include <functional>

namespace isentrope {

// Runs `body` for every task below `tasks` on torch's threads, and rethrows a task's exception.
// Calls a function inside libtorch, because the template at::parallel_for is a serial loop in
// sources compiled without OpenMP.
void run_on_torch_threads(std::int64_t tasks, const std::function<void(std::int64_t)>& body);

}  // namespace isentrope
