// ParallelFor: runs the tasks of a call.
#pragma once

#include <cstdint>
#include <functional>

namespace isentrope {

// Calls body(0), ..., body(tasks - 1), each once, in any order, on any threads, and returns when
// all are done. Results depend neither on the order nor on the number of threads.
using ParallelFor =
    std::function<void(std::int64_t tasks, const std::function<void(std::int64_t)>& body)>;

inline void run_serially(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

// Runs on the library's own pool: one thread for each processor that this process may use, made at
// the first call. Calls from several threads take turns. A child of fork() makes its own pool, even
// if it was forked during another thread's call.
void run_on_pool(std::int64_t tasks, const std::function<void(std::int64_t)>& body);

}  // namespace isentrope
