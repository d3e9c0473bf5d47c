#include "isentrope/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace isentrope {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread looks for its next job before it sleeps, since waking takes as long as a small
// call. It yields meanwhile, so that other threads of a busy machine run.
constexpr auto kAwake = std::chrono::microseconds(200);

// Returns once `done()` holds or the time is over.
template <typename Done>
void stay_awake(const Done& done) {
  for (const auto until = Clock::now() + kAwake; !done() && Clock::now() < until;)
    std::this_thread::yield();
}

// Threads that sleep between jobs. Workers and caller draw a job's tasks from one counter. A worker
// that wakes after the last task was drawn finds the job closed, so that nobody waits for it.
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
      error_ = nullptr;
      ++job_;
    }
    wake_.notify_all();
    draw(tasks, body);
    {
      const std::lock_guard lock(mutex_);
      body_ = nullptr;
    }
    stay_awake([this] { return busy_ == 0; });
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
    for (std::uint64_t seen = 0;;) {
      stay_awake([&] { return job_ != seen || stop.stop_requested(); });
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [&] { return job_ != seen; })) return;
      seen = job_;
      if (body_ == nullptr) continue;
      const std::int64_t tasks = tasks_;
      const auto& body = *body_;
      ++busy_;
      lock.unlock();
      draw(tasks, body);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable_any wake_, done_;
  const std::function<void(std::int64_t)>* body_ = nullptr;  // null: the job is closed
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<std::size_t> busy_ = 0;  // workers that draw tasks
  std::atomic<std::uint64_t> job_ = 0;
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
} process_pool;

}  // namespace

void run_on_pool(std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
  // A single task needs no other thread. A nested call would deadlock if it waited for the pool.
  if (tasks <= 1 || inside_pool) return run_serially(tasks, body);
  ProcessPool::get().run(tasks, [&body](std::int64_t task) {
    const struct Inside {
      Inside() { inside_pool = true; }
      ~Inside() { inside_pool = false; }
    } inside;
    body(task);
  });
}

}  // namespace isentrope
