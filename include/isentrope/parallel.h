// ParallelFor: runs the tasks of a call.
#pragma once

#include <cstdint>
#include <functional>

namespace isentrope {

// Calls body(0), ..., body(tasks - 1), each once, in any order, on any threads, and returns when
// all are done. Results depend neither on the order nor on the number of threads.
using ParallelFor =
    std::function<void(std::int64_t tasks, const std::function<void(std::int64_t)>& body)>;

// Runs the tasks in order, in the calling thread.
inline void run_serially(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

// Runs the tasks on the library's own pool, which is made at the first call with one thread per
// processor that this process may use. Calls from several threads take turns; a call from within a
// task runs serially. If a task throws, tasks that have not begun are dropped and the first
// exception is rethrown. A child of fork() makes its own pool, even if it was forked during another
// thread's call.
void run_on_pool(std::int64_t tasks, const std::function<void(std::int64_t)>& body);

}  // namespace isentrope
