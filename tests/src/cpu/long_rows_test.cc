// Precision of rows of a million keys, and memory linear in their length.

#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "isentrope/derivatives.h"
#include "tests/support/on_target.h"
#include "tools/check/judge.h"

namespace isentrope {

// Bytes allocated through operator new, now and at most.
static std::atomic<std::int64_t> allocated, peak;

static void* allocate(const void* /*caller*/, std::size_t size, std::size_t alignment) noexcept {
  void* const memory =
      std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  const std::int64_t now = allocated += static_cast<std::int64_t>(malloc_usable_size(memory));
  for (std::int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
  }
  return memory;
}

static void give_back(void* memory) noexcept {
  allocated -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace isentrope

#include "tests/support/replaced_new.h"

namespace isentrope::check {
namespace {

class LongRows : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(LongRows);

TEST_P(LongRows, AMillionKeysAreWithinBudget) {
  for (const char* line : {"shape=1x1x2x1000000x2 rule=entropy_invariant(base=512) bwd=1",
                           "shape=1x1x1x1000003x1 bwd=1"}) {
    const Verdict verdict = Judge(parse_problem(line)).judge();
    EXPECT_EQ(verdict.outcome, Outcome::passed) << line << ": " << verdict.worst().where;
    // The budget covers the longest chain of additions only; actual errors are far smaller.
    EXPECT_LE(verdict.forward.worst, 0.5) << verdict.forward.where;
  }
}

TEST_P(LongRows, AMillionEqualKeysHaveTheEntropyOfTheirNumber) {
  // 1 query takes the split path, 97 the other: 250000 keys are enough there.
  for (const auto& [line, keys] : {std::pair{"shape=1x1x1x1000000x1 rule=constant(scale=0)", 1e6},
                                   {"shape=1x1x97x250000x1 rule=constant(scale=0)", 250000.0}}) {
    const ForwardResult got = run_forward(Data(parse_problem(line)));
    for (std::size_t row = 0; row < got.entropy.size(); ++row) {
      EXPECT_NEAR(got.entropy[row], std::log(keys), 2e-6);
      EXPECT_NEAR(got.lse[row], std::log(keys), 2e-6);
      EXPECT_NEAR(got.collision[row] * keys, 1, 1e-6);
      EXPECT_EQ(static_cast<double>(got.support[row]), keys);
    }
  }
}

constexpr std::array kPasses = {"forward", "backward", "tangent", "second-order"};

// Returns the bytes that each pass allocates at most, beyond inputs and results.
std::array<std::int64_t, 4> extra_memory(std::int64_t n, const std::string& words) {
  const std::string length = std::to_string(n);
  const Data data(parse_problem("shape=1x1x" + length + "x" + length + "x8 " + words));
  const auto rows = static_cast<std::size_t>(n);
  std::vector<float> output(rows * 8), lse(rows), dq(rows * 8), dk(rows * 8), dv(rows * 8),
      output_tangent(rows * 8), lse_tangent(rows);
  const auto tensor = [&](std::vector<float>& values) {
    return contiguous_view<float, 4>(values.data(), {1, 1, n, 8});
  };
  AttentionOptions options = data.options();
  options.parallel_for = run_on_pool;
  const auto measure = [](const auto& call) {
    const std::int64_t before = allocated;
    peak = before;
    call();
    return peak - before;
  };
  RowStatistics statistics, statistic_tangents;
  statistics.lse = contiguous_view<float, 3>(lse.data(), {1, 1, n});
  statistic_tangents.lse = contiguous_view<float, 3>(lse_tangent.data(), {1, 1, n});
  const std::int64_t forward =
      measure([&] { attention_forward(data.input(), options, {tensor(output), statistics}); });
  AttentionGradientInput upstream{
      .output = tensor(output), .statistics = {.lse = statistics.lse}, .d_output = tensor(output)};
  const std::int64_t backward = measure([&] {
    attention_backward(data.input(), options, upstream, {tensor(dq), tensor(dk), tensor(dv)});
  });
  const AttentionInput in = data.input();
  const AttentionTangents tangents{.q = in.q, .k = in.k, .v = in.v};
  const std::int64_t tangent = measure([&] {
    attention_tangent(
        in, options,
        {.output = tensor(output), .statistics = {.lse = statistics.lse}, .tangents = tangents},
        {tensor(output_tangent), statistic_tangents});
  });
  const AttentionSecondOrderInput second{.output = tensor(output),
                                         .statistics = {.lse = statistics.lse},
                                         .tangents = tangents,
                                         .output_tangent = tensor(output_tangent),
                                         .statistic_tangents = {.lse = statistic_tangents.lse},
                                         .d_output = tensor(output)};
  const std::int64_t second_order = measure(
      [&] { attention_second_order(in, options, second, {tensor(dq), tensor(dk), tensor(dv)}); });
  return {forward, backward, tangent, second_order};
}

void expect_linear(const std::string& words) {
  const auto shorter = extra_memory(16384, words), longer = extra_memory(65536, words);
  for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
    std::printf("extra memory of the %s pass: %.2f MB at n = 16384, %.2f MB at n = 65536\n",
                kPasses[pass], static_cast<double>(shorter[pass]) * 1e-6,
                static_cast<double>(longer[pass]) * 1e-6);
    // Gradients: eight partial dq, packed keys and values: some 100 floats a row and thread.
    const bool sums_queries = pass % 2 == 1;
    EXPECT_LE(longer[pass], std::int64_t{65536} * (sums_queries ? 2048 : 256));
    EXPECT_LE(longer[pass], 6 * std::max<std::int64_t>(shorter[pass], 1 << 20));
  }
}

// A window saves time; allocation does not depend on which tiles are computed.
TEST(Memory, GrowsWithTheLengthOfTheRows) {
  expect_linear("mask=causal:bottom_right,window=256:0");
}

// The backward pass draws dropout's mask again instead of storing it.
TEST(Memory, GrowsWithTheLengthOfTheRowsWithDropout) {
  expect_linear("mask=causal:bottom_right,window=256:0 dropout=0.1");
}

// Same without a mask, which takes minutes: make test-all.
TEST(Memory, DISABLED_GrowsWithTheLengthOfTheRowsWithoutAMask) { expect_linear("mask=none"); }

}  // namespace
}  // namespace isentrope::check
