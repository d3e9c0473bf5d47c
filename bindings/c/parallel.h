// Runs tasks through a C callback.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "isentrope/isentrope.h"
#include "isentrope/parallel.h"

namespace isentrope::c_api {

// Tasks of one job. The thread that waits for all tasks rethrows the first exception of a task,
// because an exception must neither unwind the caller's C code nor end a thread.
class Job {
 public:
  explicit Job(const std::function<void(std::int64_t)>& body) : body_(body) {}

  void run(std::int64_t index) noexcept {
    try {
      body_(index);
    } catch (...) {
      if (!failed_.exchange(true)) first_ = std::current_exception();
    }
    ran_.fetch_add(1);
  }

  void finish(std::int64_t tasks) const {
    if (first_) std::rethrow_exception(first_);
    // Missing tasks would silently leave results unwritten.
    if (ran_ != tasks) {
      throw std::runtime_error("[parallel_for] every task must run once; got " +
                               std::to_string(ran_.load()) + " of " + std::to_string(tasks));
    }
  }

 private:
  const std::function<void(std::int64_t)>& body_;
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> ran_ = 0;
  std::exception_ptr first_;
};

inline ParallelFor through_c(isentrope_parallel_for parallel_for, void* user) {
  return [parallel_for, user](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    Job job(body);
    parallel_for(
        user, tasks, [](void* task, std::int64_t index) { static_cast<Job*>(task)->run(index); },
        &job);
    job.finish(tasks);
  };
}

}  // namespace isentrope::c_api
