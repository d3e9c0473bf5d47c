#include "bindings/jax/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>

namespace isentrope::jax {
namespace {

// The tasks of one job. Threads that come after the last task touch nothing but this object, so
// the caller need not wait for them: the pool may be busy with callers that wait.
class Job {
 public:
  Job(std::int64_t tasks, const std::function<void(std::int64_t)>& body)
      : tasks_(tasks), body_(body) {}

  void work() noexcept {
    for (std::int64_t task; (task = next_.fetch_add(1)) < tasks_;) {
      try {
        body_(task);
      } catch (...) {
        if (!failed_.exchange(true)) first_ = std::current_exception();
      }
      if (done_.fetch_add(1) + 1 == tasks_) done_.notify_all();
    }
  }

  void finish() {
    for (std::int64_t done; (done = done_.load()) != tasks_;) done_.wait(done);
    if (first_) std::rethrow_exception(first_);
  }

 private:
  const std::int64_t tasks_;
  const std::function<void(std::int64_t)>& body_;
  std::atomic<std::int64_t> next_ = 0, done_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr first_;
};

}  // namespace

ParallelFor on_threads_of(xla::ffi::ThreadPool& pool) {
  const std::int64_t threads = pool.num_threads();
  if (threads == 0) return {};
  return [&pool, threads](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    const auto job = std::make_shared<Job>(tasks, body);
    for (std::int64_t helper = 1; helper < std::min(tasks, threads); ++helper)
      pool.Schedule([job] { job->work(); });
    job->work();
    job->finish();
  };
}

}  // namespace isentrope::jax
