// Random calls from eight threads, with forks in between, for two minutes or
// ISENTROPE_SOAK_SECONDS: every result is right, and memory does not grow.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "isentrope/attention_state.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

namespace isentrope {
namespace {

using check::Judge;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kThreads = 8, kProblems = 250;
constexpr rlim_t kMostMemory = rlim_t{4} << 30;

double seconds() {
  const char* const asked = std::getenv("ISENTROPE_SOAK_SECONDS");
  return asked == nullptr ? 120 : std::atof(asked);
}

// Returns this process's resident bytes after freeing unused memory.
double resident_bytes() {
  malloc_trim(0);
  std::int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
}

ParallelFor threads_of_its_own(std::int64_t threads) {
  return [threads](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    std::vector<std::jthread> workers;
    for (std::int64_t first = 0; first < threads; ++first) {
      workers.emplace_back([=, &body] {
        for (std::int64_t task = first; task < tasks; task += threads) body(task);
      });
    }
  };
}

class Soak {
 public:
  Soak() {
    for (std::int64_t i = 0; i < kProblems; ++i)
      judges_.emplace_back(check::generated_problem(9, i));
  }

  // Runs a random call; returns a description of an error, or "".
  std::string call(std::mt19937& random) const {
    const Judge& judge = judges_[random() % judges_.size()];
    const check::Data& data = judge.data();
    switch (random() % 8) {
      case 0:
        return merged_is_whole(data) ? "" : "merge of " + text_of(data.problem);
      case 1: {
        const std::string rule = data.problem.rule.text();
        return ScaleRule::parse(rule).text() == rule ? "" : rule;
      }
      case 2:
      case 3: {
        const auto threads = 1 + static_cast<std::int64_t>(random() % 4);
        return error_of(judge, threads_of_its_own(threads));
      }
      case 4:
        return error_of(judge, run_on_pool);
      default:
        return error_of(judge, run_serially);
    }
  }

 private:
  static std::string error_of(const Judge& judge, const ParallelFor& parallel_for) {
    const check::Data& data = judge.data();
    const check::ForwardResult forward = run_forward(data, data.options(parallel_for));
    check::Verdict verdict;
    if (judge.upstream() == nullptr) {
      verdict = judge.judge(forward, nullptr);
    } else {
      const check::BackwardResult backward =
          run_backward(data, forward, *judge.upstream(), data.options(parallel_for));
      verdict = judge.judge(forward, &backward);
    }
    return verdict.outcome == check::Outcome::failed
               ? text_of(data.problem) + ": " + verdict.worst().where
               : "";
  }

  // A state merged with the identity is that state, also through its bytes.
  static bool merged_is_whole(const check::Data& data) {
    if (data.problem.sink || data.problem.dropout > 0) return true;  // not part of a state
    const AttentionState state = attention_state(data.input(), data.options());
    const std::vector<std::byte> bytes = to_bytes(state);
    return to_bytes(merge(state_from_bytes(bytes), AttentionState(state.shape))) == bytes;
  }

  std::deque<Judge> judges_;
};

// A child computes while its parent's threads do, and exits normally.
bool child_is_right(const Soak& soak, unsigned seed) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::mt19937 random(seed);
    bool right = true;
    for (int i = 0; i < 5; ++i) right = soak.call(random).empty() && right;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Soak, EveryResultIsRightAndMemoryStaysFlat) {
  const rlimit limit = {kMostMemory, kMostMemory};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const Soak soak;
  std::atomic<bool> over = false;
  std::atomic<std::int64_t> calls = 0;
  std::mutex mutex;
  std::string wrong;
  std::vector<std::jthread> threads;
  for (unsigned seed = 0; seed < kThreads; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!over) {
        const std::string found = soak.call(random);
        ++calls;
        if (found.empty()) continue;
        const std::lock_guard lock(mutex);
        wrong = found;
        over = true;
      }
    });
  }
  const Clock::time_point start = Clock::now();
  const auto share = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count() / seconds();
  };
  double warm = 0;
  for (unsigned forks = 0; share() < 1 && !over; ++forks) {
    if (!child_is_right(soak, 1000 + forks)) over = true;
    ASSERT_FALSE(over) << "child " << forks << "; " << wrong;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (warm == 0 && share() > 0.3) warm = resident_bytes();
  }
  const double end = resident_bytes();
  over = true;
  threads.clear();
  EXPECT_EQ(wrong, "");
  EXPECT_LT(end, 1.05 * warm);
  std::printf("%lld calls; %.1f MB after a third, %.1f MB at the end\n",
              static_cast<long long>(calls), warm / 1e6, end / 1e6);
}

}  // namespace
}  // namespace isentrope
