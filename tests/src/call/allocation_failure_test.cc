// Allocation failures: whichever fails, there is an error, no leak, and the next call is right.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "isentrope/attention_state.h"
#include "isentrope/config/scale_rule_json.h"
#include "isentrope/error.h"
#include "isentrope/isentrope.h"
#include "tests/support/failing_allocator.h"
#include "tools/check/run.h"

namespace isentrope {
namespace {

using check::Data;
using check::Problem;

// Returns the call's result; empty if allocation `which` failed. Its thread frees scratch memory.
template <typename Call>
auto with_failure(const Call& call, std::int64_t which) {
  std::optional<decltype(call())> result;
  std::thread([&] {
    const FailingAllocation failure(which);
    try {
      result = call();
    } catch (const std::bad_alloc&) {
    }
  }).join();
  return result;
}

// Each thread of the pool keeps scratch memory from its first task on.
const std::int64_t kKeptByPool = std::thread::hardware_concurrency();

// call() returns a comparable result, or throws std::bad_alloc. kept: allocations that may outlive
// it. If there are many allocations, 400 evenly spaced ones fail.
template <typename Call>
void expect_that_every_allocation_may_fail(const Call& call, std::int64_t kept = 0) {
  constexpr std::int64_t kMost = 400;
  const auto want = call();  // also creates what is made once and kept
  std::int64_t which = 1, allocations = 0;
  {
    const FailingAllocation none(std::int64_t{1} << 40);
    (void)call();
    allocations = (std::int64_t{1} << 40) - 1 - until_failure;
  }
  ASSERT_GT(allocations, 0);
  const std::int64_t step = std::max<std::int64_t>(1, allocations / kMost);
  const std::int64_t before = live_allocations;
  std::int64_t failed = 0;
  for (;; which += step) {
    const bool returned = [&] {
      const auto got = with_failure(call, which);
      if (got.has_value()) {
        EXPECT_EQ(*got, want) << which;
      }
      return got.has_value();
    }();
    EXPECT_LE(live_allocations, before + kept) << which;
    failed += !returned;
    EXPECT_EQ(call(), want) << "after allocation " << which;
    if (returned && which > allocations + 8) break;  // threads may allocate slightly differently
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(failed, std::min(allocations, kMost) / 2);
}

std::vector<float> results_of(const Problem& problem, const ParallelFor& parallel_for) {
  const Data data(problem);
  const check::ForwardResult forward = run_forward(data, data.options(parallel_for));
  std::vector<float> all = forward.output;
  all.insert(all.end(), forward.entropy.begin(), forward.entropy.end());
  if (!problem.backward) return all;
  const check::BackwardResult backward =
      run_backward(data, forward, check::random_gradient(problem), data.options(parallel_for));
  for (const auto* values : {&backward.dq, &backward.dk, &backward.dv, &backward.d_lambda})
    all.insert(all.end(), values->begin(), values->end());
  return all;
}

// In child processes, where threads and lists of names do not exist yet.
TEST(AllocationFailure, OfTheFirstCall) {
  const Problem problem = check::parse_problem("shape=1x8x64x64x16 bwd=1");
  for (std::int64_t which = 1; which <= 120; ++which) {
    const auto first_call = [&] {
      {
        const FailingAllocation failure(which);
        try {
          (void)isentrope_target(0);
          (void)results_of(problem, run_on_pool);
        } catch (const std::bad_alloc&) {
        }
      }
      const bool right = isentrope_target(0) != nullptr &&
                         results_of(problem, run_on_pool) == results_of(problem, run_serially);
      _exit(right ? 0 : 1);
    };
    ASSERT_EXIT(first_call(), testing::ExitedWithCode(0), "") << which;
  }
}

TEST(AllocationFailure, Attention) {
  for (const char* line : {
           "shape=1x4:2x70x70x16 mask=causal:bottom_right rule=logn(train_len=32) sink=1 bwd=1",
           "dt=bf16 shape=2x2x33x300x16 mask=window=20:20,left_padding cap=5 bwd=1",
           "dt=f16 shape=1x2x40x40x8 mask=documents=3 rule=ssmax(s=0.3,b=0.2) bias=1 bwd=1",
           "shape=2x4:1x1x5000x16 mask=causal:bottom_right pages=16 rule=log_length",
       }) {
    SCOPED_TRACE(line);
    const Problem problem = check::parse_problem(line);
    expect_that_every_allocation_may_fail([&] { return results_of(problem, run_serially); });
    expect_that_every_allocation_may_fail([&] { return results_of(problem, run_on_pool); },
                                          kKeptByPool);
  }
}

TEST(AllocationFailure, States) {
  const Data data(check::parse_problem("shape=1x2x9x30x8"));
  const AttentionState state = attention_state(data.input(), data.options());
  expect_that_every_allocation_may_fail([&] {
    const AttentionState again = attention_state(data.input(), data.options());
    const std::array<float, 2> sinks = {0.5f, -1};
    const AttentionState merged =
        with_sinks(merge(again, state), contiguous_view<const float, 1>(sinks.data(), {2}));
    return to_bytes(state_from_bytes(to_bytes(merged)));
  });
}

TEST(AllocationFailure, Rules) {
  for (const char* text :
       {"entropy_invariant(base=512)", "ssmax(s=[0.1,0.2,0.3],b=0.5)",
        "longrope(train_len=4096,target_len=131072)", "logn(train_len=64)*yarn_mscale(factor=4)"}) {
    SCOPED_TRACE(text);
    expect_that_every_allocation_may_fail([&] { return ScaleRule::parse(text).text(); });
    const std::string json = to_json(ScaleRule::parse(text));
    expect_that_every_allocation_may_fail(
        [&] { return to_json(scale_rule_from_json(json)) + scale_rule_from_json(json).text(); });
  }
}

// Reports either the JSON error or that memory is exhausted, never one for the other.
TEST(AllocationFailure, WrongJson) {
  for (const char* text : {R"({"rule": "logn", "train_len": {"of": [1, 2, ["three"]]}})",
                           R"({"rule": "logn", "train_len": 1e999})", R"({"rule": ["a", )"}) {
    SCOPED_TRACE(text);
    expect_that_every_allocation_may_fail([&]() -> std::string {
      try {
        return scale_rule_from_json(text).text();
      } catch (const Error& error) {
        return error.what();
      }
    });
  }
}

TEST(AllocationFailure, RulesOfModels) {
  constexpr const char* kConfig =
      R"({"model_type": "deepseek_v3", "text_config": {"hidden_size": 512, "num_attention_heads": 8,
          "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1, "mscale_all_dim": 1,
                           "lists": [[1, 2], {"and": "objects"}]}}})";
  expect_that_every_allocation_may_fail(
      [&] { return to_json(scale_of_config(kConfig).rule) + scale_of_config(kConfig).layers; });
}

// Returns a status at every step, never an exception; failed setters leave options unchanged.
TEST(AllocationFailure, CrossesNoBorderOfC) {
  constexpr std::array<std::int64_t, 4> kShape = {1, 2, 50, 8};
  std::vector<float> q(2 * 50 * 8), output(q.size()), lse(2 * 50), dq(q.size()), dk(q.size()),
      dv(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7) - 3;
  const auto array = [&](std::vector<float>& of, std::int32_t rank = 4) {
    return isentrope_array_contiguous(of.data(), ISENTROPE_F32, rank, kShape.data());
  };
  const auto done = [](isentrope_status status) {
    if (status == ISENTROPE_OUT_OF_MEMORY) throw std::bad_alloc();
    EXPECT_EQ(status, ISENTROPE_OK) << isentrope_last_error();
  };
  const auto compute = [&](const isentrope_options* options) {
    isentrope_statistics statistics{};
    statistics.struct_size = sizeof statistics;
    statistics.lse = array(lse, 3);
    isentrope_forward_call forward{};
    forward.struct_size = sizeof forward;
    forward.q = forward.k = forward.v = array(q);
    forward.output = array(output);
    forward.statistics = &statistics;
    done(isentrope_forward(options, &forward));
    isentrope_backward_call backward{};
    backward.struct_size = sizeof backward;
    backward.q = backward.k = backward.v = backward.d_output = array(q);
    backward.output = array(output);
    backward.statistics = &statistics;
    backward.dq = array(dq);
    backward.dk = array(dk);
    backward.dv = array(dv);
    done(isentrope_backward(options, &backward));
    return std::array{output, dq, dk, dv};
  };
  struct Options {
    isentrope_options* made = isentrope_options_create();
    ~Options() { isentrope_options_destroy(made); }
  };
  const Options standard;
  const auto want = compute(standard.made);
  expect_that_every_allocation_may_fail(
      [&] {
        const Options options;
        if (options.made == nullptr) throw std::bad_alloc();
        done(isentrope_options_set_integer(options.made, "window_left", 9));
        const isentrope_status status =
            isentrope_options_set_rule(options.made, "logn(train_len=8)");
        if (status == ISENTROPE_OUT_OF_MEMORY) {
          done(isentrope_options_set_integer(options.made, "window_left", -1));
          EXPECT_EQ(compute(options.made), want);
        }
        done(status);
        double lambda = 0;
        done(isentrope_rule_lambda("log_length", 100, 64, 0, &lambda));
        done(isentrope_use_target(isentrope_target(0)));
        if (isentrope_active_target() == nullptr) throw std::bad_alloc();
        return compute(options.made);
      },
      kKeptByPool);
}

}  // namespace
}  // namespace isentrope
