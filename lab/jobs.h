// Jobs: tasks dealt out to threads.
#pragma once

#include <cstddef>
#include <functional>

namespace isentrope::lab {

// Runs task(0), ..., task(count - 1) on `workers` threads, each as soon as one is free. When a task
// throws, no further one begins, `stop` is called once, and what was thrown first is thrown again
// when the others have returned.
void run_jobs(std::size_t count, std::size_t workers, const std::function<void(std::size_t)>& task,
              const std::function<void()>& stop);

}  // namespace isentrope::lab
