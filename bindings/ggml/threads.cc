#include "bindings/ggml/threads.h"

#include <algorithm>
#include <exception>

namespace isentrope::ggml {

ParallelFor on_openmp(int threads) {
  return [threads](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    if (tasks == 1 || threads == 1) return run_serially(tasks, body);
    // An exception must not leave a parallel region: the first is rethrown after it.
    std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task) {
      try {
        body(task);
      } catch (...) {
#pragma omp critical(isentrope_error)
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  };
}

}  // namespace isentrope::ggml
