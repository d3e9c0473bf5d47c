// The C interface in a forked child, whose only thread is the one that forked.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "isentrope/isentrope.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
// Memory of other threads at the time of a fork is unreachable in the child, which is no leak.
extern "C" int __lsan_is_turned_off() { return 1; }
#endif

namespace {

constexpr unsigned kPatience = 60;  // seconds until a hanging child is ended

// Computes work for every thread of the pool, short enough to run thousands of times.
std::vector<float> forward() {
  constexpr std::array<std::int64_t, 4> kShape = {1, 8, 64, 16};
  std::vector<float> q(8 * 64 * 16), output(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7) - 3;
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call{};
  call.struct_size = sizeof call;
  call.q = call.k = call.v = isentrope_array_contiguous(q.data(), ISENTROPE_F32, 4, kShape.data());
  call.output = isentrope_array_contiguous(output.data(), ISENTROPE_F32, 4, kShape.data());
  if (isentrope_forward(options, &call) != ISENTROPE_OK) output.clear();
  isentrope_options_destroy(options);
  return output;
}

// Returns the exit status of a child that computes, and exits by the library's destructors.
int child_that_computes(const std::vector<float>& want) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatience);
    exit(forward() == want ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The thread sanitizer forbids children of multi-threaded processes to start threads.
#if defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_TSAN() GTEST_SKIP()
#else
#define SKIP_UNDER_TSAN() (void)0
#endif

// The address sanitizer's allocator keeps locks that other threads held during the fork.
#if defined(__SANITIZE_ADDRESS__)
#define SKIP_UNDER_ASAN() GTEST_SKIP()
#else
#define SKIP_UNDER_ASAN() (void)0
#endif

TEST(Fork, AChildComputesAfterItsParentUsedThreads) {
  SKIP_UNDER_TSAN();
  const std::vector<float> want = forward();
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(child_that_computes(want), 0);
  EXPECT_EQ(forward(), want);
}

TEST(Fork, AChildForkedInTheMiddleOfAnotherThreadsCallComputes) {
  SKIP_UNDER_TSAN();
  SKIP_UNDER_ASAN();
  const std::vector<float> want = forward();
  std::atomic<bool> over = false;
  std::jthread other([&] {
    while (!over) forward();
  });
  for (int i = 0; i < 50; ++i) {
    const int status = child_that_computes(want);
    EXPECT_EQ(status, 0) << "child " << i;
    if (status != 0) break;  // a hanging child takes a minute
  }
  over = true;
}

}  // namespace
