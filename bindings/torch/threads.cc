#include "bindings/torch/threads.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "bindings/torch/shim.h"
#include "isentrope/error.h"

namespace isentrope {

// Exceptions must not cross the C interface: the first is rethrown when all threads returned.
void run_on_torch_threads(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  if (tasks == 1) return body(0);
  struct Context {
    const std::function<void(std::int64_t)>& body;
    const std::int64_t tasks;
    std::atomic<std::int64_t> next = 0;
    std::once_flag once{};
    std::exception_ptr error{};
  } context{body, tasks};
  // Threads draw tasks from one counter instead of the range that torch gives each: tasks differ in
  // length, and half the blocks of a causal call are not half of its work.
  const auto run = [](std::int64_t, std::int64_t, void* opaque) {
    auto& shared = *static_cast<Context*>(opaque);
    try {
      for (std::int64_t task; (task = shared.next.fetch_add(1)) < shared.tasks;) shared.body(task);
    } catch (...) {
      std::call_once(shared.once, [&] { shared.error = std::current_exception(); });
    }
  };
  const AOTITorchError failed = torch_parallel_for(0, tasks, 1, run, &context);
  if (context.error) std::rethrow_exception(context.error);
  if (failed != 0)
    throw Error("[attention] torch must run tasks; got its error " + std::to_string(failed));
}

}  // namespace isentrope
