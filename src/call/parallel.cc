#include "isentrope/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace isentrope {
namespace {

// Threads that sleep between jobs. Workers and caller draw a job's tasks from one counter.
class Pool {
 public:
  Pool() {
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned i = 1; i < processors; ++i) {
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  void run(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    const std::lock_guard turn(turn_);
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      tasks_ = tasks;
      next_ = 0;
      busy_ = workers_.size();
      error_ = nullptr;
      ++job_;
    }
    wake_.notify_all();
    draw(tasks, body);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void draw(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    try {
      for (std::int64_t task; (task = next_.fetch_add(1)) < tasks;) body(task);
    } catch (...) {
      // The first error is rethrown to the caller once no worker uses its data. Tasks not begun are
      // dropped.
      next_ = tasks;
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  void work(const std::stop_token& stop) {
    std::uint64_t seen = 0;
    for (std::unique_lock lock(mutex_); wake_.wait(lock, stop, [&] { return job_ != seen; });) {
      seen = job_;
      const std::int64_t tasks = tasks_;
      const auto& body = *body_;
      lock.unlock();
      draw(tasks, body);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable_any wake_, done_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  std::size_t busy_ = 0;
  std::uint64_t job_ = 0;
  std::exception_ptr error_;           // the first error of a job
  std::vector<std::jthread> workers_;  // last: workers stop before members they use
};

thread_local bool inside_pool = false;

// The pool of this process. fork() copies no threads, and another thread may hold its locks. A
// child therefore abandons the parent's pool and makes its own at its first call.
class ProcessPool {
 public:
  ProcessPool() {
    pthread_atfork(nullptr, nullptr, [] { pool_ = nullptr; });
  }
  ~ProcessPool() { delete pool_.load(); }

  // A lock could be held at the time of a fork. If several threads call first, one keeps its pool.
  static Pool& get() {
    if (Pool* pool = pool_) return *pool;
    auto fresh = std::make_unique<Pool>();
    Pool* none = nullptr;
    return pool_.compare_exchange_strong(none, fresh.get()) ? *fresh.release() : *none;
  }

 private:
  static inline std::atomic<Pool*> pool_ = nullptr;
  static inline std::atomic<Pool*> parents_ = nullptr;  // reachable: no leak
} process_pool;

}  // namespace

void run_on_pool(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  // A single task needs no other thread. A nested call would deadlock if it waited for the pool.
  if (tasks <= 1 || inside_pool) return run_serially(tasks, body);
  ProcessPool::get().run(tasks, [&body](std::int64_t task) {
    struct Inside {
      Inside() { inside_pool = true; }
      ~Inside() { inside_pool = false; }
    } inside;
    body(task);
  });
}

}  // namespace isentrope
