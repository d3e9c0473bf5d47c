// ParallelFor: who runs the tasks of a call.
#pragma once

#include <cstdint>
#include <functional>

namespace isentrope {

// Calls body(0), ..., body(tasks - 1), each once, in any order, on any threads, and returns when
// all are done. Results do not depend on order or number of threads.
using ParallelFor =
    std::function<void(std::int64_t tasks, const std::function<void(std::int64_t)>& body)>;

inline void run_serially(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

// On the library's own pool: one thread for each processor this process may use, made at the first
// call. Calls from several threads take turns. A child of fork() makes a pool of its own, even when
// it was forked in the middle of another thread's call.
void run_on_pool(std::int64_t tasks, const std::function<void(std::int64_t)>& body);

}  // namespace isentrope
