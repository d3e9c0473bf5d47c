#include "lab/jobs.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace isentrope::lab {

void run_jobs(std::size_t count, std::size_t workers, const std::function<void(std::size_t)>& task,
              const std::function<void()>& stop) {
  std::mutex mutex;
  std::size_t next = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    while (true) {
      std::size_t mine = 0;
      {
        const std::scoped_lock lock(mutex);
        if (failure || next == count) return;
        mine = next++;
      }
      try {
        task(mine);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (failure) return;
        failure = std::current_exception();
        stop();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < std::min(workers, count); ++i) threads.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace isentrope::lab
