// Precision of rows of a million keys, and memory linear in their length.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "tests/support/on_target.h"
#include "tools/check/judge.h"

namespace {

// Bytes allocated through operator new, now and at most.
std::atomic<std::int64_t> allocated, peak;
constexpr std::size_t kHeader = 64;  // stores the size, keeps the alignment

}  // namespace

void* operator new(std::size_t bytes) {
  auto* block = static_cast<std::byte*>(std::malloc(bytes + kHeader));
  if (!block) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(block) = bytes;
  const std::int64_t now = allocated += static_cast<std::int64_t>(bytes);
  for (std::int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
  }
  return block + kHeader;
}
void operator delete(void* pointer) noexcept {
  if (!pointer) return;
  auto* block = static_cast<std::byte*>(pointer) - kHeader;
  allocated -= static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block));
  std::free(block);
}
void operator delete(void* pointer, std::size_t) noexcept { operator delete(pointer); }

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

// Returns the bytes that a forward and a backward pass allocate at most, beyond inputs and results.
std::pair<std::int64_t, std::int64_t> extra_memory(std::int64_t n, const std::string& words) {
  const std::string length = std::to_string(n);
  const Data data(parse_problem("shape=1x1x" + length + "x" + length + "x8 " + words));
  const auto rows = static_cast<std::size_t>(n);
  std::vector<float> output(rows * 8), lse(rows), dq(rows * 8), dk(rows * 8), dv(rows * 8);
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
  RowStatistics statistics;
  statistics.lse = contiguous_view<float, 3>(lse.data(), {1, 1, n});
  const std::int64_t forward =
      measure([&] { attention_forward(data.input(), options, {tensor(output), statistics}); });
  AttentionGradientInput upstream{
      .output = tensor(output), .statistics = {.lse = statistics.lse}, .d_output = tensor(output)};
  const std::int64_t backward = measure([&] {
    attention_backward(data.input(), options, upstream, {tensor(dq), tensor(dk), tensor(dv)});
  });
  return {forward, backward};
}

void expect_linear(const std::string& words) {
  const auto [forward, backward] = extra_memory(16384, words);
  const auto [forward4, backward4] = extra_memory(65536, words);
  std::printf(
      "extra memory at n = 16384: forward %.2f MB, backward %.2f MB; at n = 65536: %.2f MB, %.2f "
      "MB "
      "(the matrix would take %.0f MB)\n",
      static_cast<double>(forward) * 1e-6, static_cast<double>(backward) * 1e-6,
      static_cast<double>(forward4) * 1e-6, static_cast<double>(backward4) * 1e-6,
      65536.0 * 65536 * 4e-6);
  // Backward: eight partial dq, packed keys and values: some 100 floats a row and thread.
  EXPECT_LE(forward4, std::int64_t{65536} * 256);
  EXPECT_LE(backward4, std::int64_t{65536} * 2048);
  EXPECT_LE(forward4, 6 * std::max<std::int64_t>(forward, 1 << 20));
  EXPECT_LE(backward4, 6 * std::max<std::int64_t>(backward, 1 << 20));
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
