// The library's own threads, and concurrent callers.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/support/same_bits.h"
#include "tools/check/run.h"

namespace isentrope::check {
namespace {

TEST(Threads, SeveralCallersAtOnceGetTheBitsOfOne) {
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([] {
      for (int repetition = 0; repetition < 3; ++repetition) {
        for (const char* line :
             {"shape=2x4:2x130x700x8 mask=causal:bottom_right rule=log_length bwd=1",
              "shape=1x4:2x1x5000x8"})
          expect_same_bits(parse_problem(line), {}, run_on_pool);
      }
    });
  }
}

// Small work items are grouped, but enough tasks remain for the threads.
TEST(Threads, SmallWorkItemsLeaveSixteenTasks) {
  const Data data(parse_problem("shape=1x64x8x8x4"));
  std::int64_t most = 0;
  const ForwardResult got =
      run_forward(data, data.options([&](std::int64_t tasks, const auto& body) {
        most = std::max(most, tasks);
        run_serially(tasks, body);
      }));
  EXPECT_EQ(most, 16);
  EXPECT_EQ(got.output, run_forward(data).output);
}

TEST(Threads, ThePoolRunsEveryTaskOnce) {
  for (const std::int64_t tasks : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    run_on_pool(tasks, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(Threads, ATaskMayUseThePool) {
  std::atomic<int> runs = 0;
  run_on_pool(8, [&](std::int64_t) { run_on_pool(8, [&](std::int64_t) { ++runs; }); });
  EXPECT_EQ(runs, 64);
}

TEST(Threads, WhatATaskThrowsReachesTheCallerAndThePoolGoesOn) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(run_on_pool(100,
                             [](std::int64_t task) {
                               if (task == 57) throw std::runtime_error("57");
                             }),
                 std::runtime_error);
    std::atomic<int> runs = 0;
    run_on_pool(10, [&](std::int64_t) { ++runs; });
    EXPECT_EQ(runs, 10);
  }
}

}  // namespace
}  // namespace isentrope::check
