// The operator on AMX's tiles against the float64 reference, and the thread's state afterwards.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "src/cpu/product/amx_tiles.h"
#include "src/cpu/product/pair_kernels.h"
#include "tests/support/amx_emulator.h"
#include "tests/support/same_bits.h"
#include "tools/check/budget.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

// Lengths around edges of tiles, blocks and row tiles, every option; heads in whole steps of depth.
constexpr const char* kProblems[] = {
    "shape=1x1x1x1x32 bwd=1",
    "shape=1x2x15x16x32 bwd=1",
    "shape=1x2x17x31x64 bwd=1",
    "shape=1x1x33x33x96:32 mask=causal:top_left bwd=1",
    "shape=1x1x47x65x32:96 mask=causal:bottom_right bwd=1",
    "shape=1x1x48x127x128 mask=window=40:9 bwd=1",
    "shape=1x1x49x129x64 mask=causal:bottom_right,window=33:0 bwd=1",
    "shape=2x4:2x21x257x64 mask=left_padding,right_padding bwd=1",
    "shape=1x2x130x300x64:128 mask=documents=5 rule=entropy_invariant(base=512) bwd=1",
    "shape=1x1x20x521x256 mask=offset=3:5 dropout=0.1 dropout_seed=8589934595 bwd=1",
    "shape=1x2:1x70x90x64 cap=20 bias=1 admitted=1 sink=1 lambda=1 bwd=1",
    "shape=1x2x40x70x64 mask=causal:bottom_right special=1 bwd=1",
    "shape=1x2x40x300x64:32 special=1 admitted=1 bwd=1",
    "shape=1x1x65x129x64 scale=1e6 bwd=1",
    "shape=1x1x65x129x64 scale=1e-6 bwd=1",
    "shape=1x8:1x13x100x64 pages=7 mask=right_padding",
    "shape=1x16:1x2x4200x64 pages=64 mask=causal:bottom_right",
    "shape=2x18:2x1x4200x64 pages=64 mask=right_padding",
    "shape=1x1x1100x40x32 mask=chunk=16 bwd=1",
    "shape=1x2x60x300x64 mask=dilation=3,window=200:0 bwd=1",
    "shape=1x1x70x300x32:1088",  // 34 panels of value columns
};

void expect_within_budget(const Problem& problem) {
  const Verdict verdict = Judge(problem).judge();
  EXPECT_NE(verdict.outcome, Outcome::failed)
      << text_of(problem) << ": " << verdict.worst().worst << " " << verdict.worst().where;
  EXPECT_TRUE(tiles_are_released()) << text_of(problem);
}

Problem bf16_problem(const std::string& line) { return parse_problem("dt=bf16 " + line); }

void expect_lines_within_budget(DType type) {
  const bool emulated = is_emulated(type);
  for (const char* line : kProblems) {
    Problem problem = parse_problem(line);
    problem.type = type;
    const std::int64_t before = emulated_instructions();
    expect_within_budget(problem);
    if (emulated && problem.queries > 1) {  // a single row is streamed
      EXPECT_GT(emulated_instructions(), before) << line;
    }
  }
}
TEST(AmxAttention, EveryOptionIsWithinBudget) { expect_lines_within_budget(DType::bf16); }
TEST(AmxAttention, EveryOptionOfF16IsWithinBudget) { expect_lines_within_budget(DType::f16); }

// Weights of 2^-19.4 beside a weight of 1 with value 0. Unscaled, they would be f16 denormals with
// 4 bits, 1.8 % off.
TEST(AmxAttention, SmallWeightsOfF16KeepTheirBits) {
  Data data(parse_problem("dt=f16 shape=1x1x32x1024x32"));
  for (std::vector<float>* numbers : {&data.q, &data.k}) numbers->assign(numbers->size(), 0);
  for (std::size_t row = 0; row < 32; ++row) data.q[row * 32] = 1;
  data.k[0] = 76;  // times 1 / sqrt(32): 19.4 ln 2
  data.v.assign(data.v.size(), 1);
  std::fill_n(data.v.begin(), 32, 0.0f);
  data.refresh();
  const Ratio ratio = forward_error_over_budget(data, run_forward(data));
  EXPECT_LE(ratio.worst, 1) << ratio.where;
}

// Streams multiply in f32 on any CPU: for few rows or keys, or dilated rows.
TEST(AmxAttention, GroupsOfTenRowsAndMoreLeaveTheirStreams) {
  const auto streams = [](const std::string& line) {
    const Data data(bf16_problem(line));
    const std::vector<float> own = run_forward(data).output;
    use_pair_kernels(DType::bf16, nullptr);
    const std::vector<float> in_f32 = run_forward(data).output;
    use_pair_kernels(DType::bf16, amx_pair_kernels(DType::bf16));
    return same_bits(own, in_f32);
  };
  EXPECT_TRUE(streams("shape=1x18:2x1x300x64"));
  EXPECT_FALSE(streams("shape=1x20:2x1x300x64"));
  EXPECT_TRUE(streams("shape=1x20:2x1x127x64"));
  EXPECT_FALSE(streams("shape=1x20:2x1x128x64"));
  EXPECT_FALSE(streams("shape=2x12:1x1x5000x64 pages=64"));
  EXPECT_TRUE(streams("shape=1x20:2x1x300x64 mask=dilation=2"));
  EXPECT_TRUE(streams("shape=1x20:2x1x300x64 cache=64"));
}

// Generated problems of one type; three of four heads support pairs. AMX has no f16 gradients.
Problem generated(DType type, std::int64_t index) {
  Problem problem = generated_problem(5, index, 200'000);
  problem.key_type.reset();
  problem.type = type;
  problem.backward &= type == DType::bf16;
  if (index % 4 == 0) return problem;
  for (std::int64_t* dim : {&problem.dim, &problem.value_dim}) *dim = (*dim + 31) / 32 * 32;
  return problem;
}

void expect_generated_within_budget(DType type, std::int64_t first, std::int64_t last) {
  for (std::int64_t index = first; index < last && !::testing::Test::HasFailure(); ++index)
    expect_within_budget(generated(type, index));
}
TEST(AmxAttention, GeneratedProblemsAreWithinBudget) {
  expect_generated_within_budget(DType::bf16, 0, 60);
  expect_generated_within_budget(DType::f16, 60, 100);
}
// For make test-all: takes minutes.
TEST(AmxAttention, DISABLED_TenThousandGeneratedProblemsAreWithinBudget) {
  for (const DType type : {DType::bf16, DType::f16})
    expect_generated_within_budget(type, 100, 10'100);
}

TEST(AmxAttention, ThreadsOfTheCallerGetTheSameBitsAndKeepNoTiles) {
  const Data data(bf16_problem("shape=1x2x100x200x64 mask=causal:bottom_right"));
  const ForwardResult want = run_forward(data);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int repetition = 0; repetition < 3; ++repetition)
        EXPECT_TRUE(same_bits(run_forward(data).output, want.output));
      EXPECT_TRUE(tiles_are_released());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

#ifdef _OPENMP
TEST(AmxAttention, ThreadsOfOpenMpGetTheSameBitsAndKeepNoTiles) {
  const Data data(bf16_problem("shape=1x2x100x200x64 mask=causal:bottom_right"));
  const ForwardResult want = run_forward(data);
  std::atomic<int> calls = 0, right = 0;
#pragma omp parallel for num_threads(4) schedule(static, 1)
  for (int thread = 0; thread < 4; ++thread) {
    const ForwardResult got = run_forward(data);
    right += same_bits(got.output, want.output) && tiles_are_released();
    ++calls;
  }
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(right, calls);
}
#endif

TEST(AmxAttention, TasksOfACallRunOnAnyThreadsOfTheCaller) {
  const Data data(bf16_problem("shape=4x4x100x200x64"));
  const ForwardResult want = run_forward(data);
  std::atomic<int> tasks = 0;
  const ForwardResult got =
      run_forward(data, data.options([&](std::int64_t count, const auto& run) {
        for (std::int64_t task = 0; task < count; ++task) {
          std::thread([&] {
            run(task);
            EXPECT_TRUE(tiles_are_released());
            ++tasks;
          }).join();
        }
      }));
  EXPECT_GT(tasks, 1);
  EXPECT_TRUE(same_bits(got.output, want.output));
}

// A container may deny the permission, and the process must not crash when it finds out.
TEST(AmxAttention, WhatIsMissingIsNamedAndNothingIsAskedForBehindIt) {
  static int asked = 0;
  amx::Needs needs{.cpu_has_tiles = [] { return true; },
                   .cpu_rounds = [] { return true; },
                   .system_saves_tiles = [] { return true; },
                   .process_may_use_tiles = [] { return ++asked == 0; }};
  EXPECT_STREQ(amx::why_not(needs), "the operating system refused the process its tiles");
  EXPECT_EQ(asked, 1);
  needs.system_saves_tiles = [] { return false; };
  EXPECT_STREQ(amx::why_not(needs), "the operating system does not save its tiles");
  needs.cpu_rounds = [] { return false; };
  EXPECT_STREQ(amx::why_not(needs), "AVX-512 BF16, which rounds for it, is hidden");
  needs.cpu_has_tiles = [] { return false; };
  EXPECT_STREQ(amx::why_not(needs), "this CPU does not have it");
  EXPECT_EQ(asked, 1);
  needs.cpu_has_tiles = needs.cpu_rounds = needs.system_saves_tiles = [] { return true; };
  needs.process_may_use_tiles = [] { return true; };
  EXPECT_EQ(amx::why_not(needs), nullptr);
}

TEST(AmxAttention, AChildOfAForkComputesTheSame) {
  const Data data(bf16_problem("shape=1x2x40x70x64"));
  const ForwardResult want = run_forward(data);
  EXPECT_EXIT(_exit(same_bits(run_forward(data).output, want.output) ? 0 : 1),
              testing::ExitedWithCode(0), "");
}

TEST(AmxAttention, OtherProductsCanBeChosenAndAreNamed) {
  const Data data(bf16_problem("shape=1x1x64x64x64"));
  EXPECT_EQ(explain_pair_kernels(DType::bf16), "AMX");
  EXPECT_EQ(explain_pair_kernels(DType::f16), "AMX-FP16");
  use_pair_kernels(DType::bf16, avx512_pair_kernels());
  const PairKernels* const amx = amx_pair_kernels(DType::bf16);
  const std::string reason = amx->why_not() ? amx->why_not() : "others were chosen";
  EXPECT_EQ(explain_pair_kernels(DType::bf16), "AVX-512 BF16; not AMX: " + reason);
  const std::int64_t before = emulated_instructions();
  const ForwardResult other = run_forward(data);
  const auto upstream = random_gradient(data.problem);
  const BackwardResult other_gradient = run_backward(data, other, upstream);
  EXPECT_EQ(emulated_instructions(), before);
  use_pair_kernels(DType::bf16, amx);
  const ForwardResult own = run_forward(data);
  // Sums are added in a different order, so some bits differ.
  EXPECT_FALSE(same_bits(own.output, other.output) && same_bits(own.lse, other.lse));
  // Gradients use pairs, too: they differ from f32's.
  EXPECT_FALSE(same_bits(run_backward(data, other, upstream).dk, other_gradient.dk));
}

}  // namespace
}  // namespace isentrope::check
