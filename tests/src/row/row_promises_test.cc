// Guarantees for rows: each line of the contract (docs/semantics.md), on every instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "isentrope/derivatives.h"
#include "tests/support/on_target.h"
#include "tests/support/relocated.h"
#include "tests/support/same_bits.h"
#include "tools/check/judge.h"
#include "tools/check/run.h"

namespace isentrope::check {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RowPromises : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(RowPromises);

BackwardResult run_backward(const Data& data, const ForwardResult& forward) {
  return check::run_backward(data, forward, random_gradient(data.problem));
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST_P(RowPromises, ARowWithoutKeysIsZeroAndGetsNoGradient) {
  // With 9 queries, 4 keys and the diagonal at the bottom right, the first 5 rows see nothing.
  Data data(parse_problem("shape=1x1x9x4x8 mask=causal:bottom_right rule=entropy_invariant"));
  data.q[3] = kNaN;  // even NaN has no effect
  data.refresh();
  const ForwardResult forward = run_forward(data);
  const BackwardResult backward = run_backward(data, forward);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(forward.lse[row], -kInfinity);
    EXPECT_EQ(forward.max_logit[row], -kInfinity);
    EXPECT_EQ(forward.entropy[row], 0);
    EXPECT_EQ(forward.collision[row], 0);
    EXPECT_EQ(forward.variance[row], 0);
    EXPECT_EQ(forward.support[row], 0);
    for (std::size_t c = 0; c < 8; ++c) {
      EXPECT_EQ(forward.output[row * 8 + c], 0);
      EXPECT_EQ(backward.dq[row * 8 + c], 0);
    }
  }
  for (const float value : backward.dk) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(RowPromises, WithoutKeysEveryRowIsEmpty) {
  const Data data(parse_problem("shape=2x1x3x0x8"));
  const ForwardResult forward = run_forward(data);
  for (const float value : forward.output) EXPECT_EQ(value, 0);
  for (const float value : forward.lse) EXPECT_EQ(value, -kInfinity);
  for (const float value : run_backward(data, forward).dq) EXPECT_EQ(value, 0);
}

TEST_P(RowPromises, OneKeyReturnsItsValueExactly) {
  for (const ScaleRule& rule :
       {ScaleRule::standard(), ScaleRule::log_length(), ScaleRule::constant(1e6)}) {
    Problem problem = parse_problem("shape=2x3x1x1x16");
    problem.rule = rule;
    const Data data(problem);
    const ForwardResult forward = run_forward(data);
    EXPECT_EQ(forward.output, data.v);
    for (const float value : forward.entropy) EXPECT_EQ(value, 0);
    for (const float value : forward.collision) EXPECT_EQ(value, 1);
    for (const float value : forward.variance) EXPECT_EQ(value, 0);
  }
}

TEST_P(RowPromises, LambdaZeroIsUniform) {
  const Data data(parse_problem("shape=1x1x50x50x8 mask=causal:top_left rule=constant(scale=0)"));
  const ForwardResult forward = run_forward(data);
  for (std::size_t row = 0; row < 50; ++row) {
    const double support = static_cast<double>(row + 1);
    EXPECT_NEAR(forward.entropy[row], std::log(support), 1e-6 * (1 + std::log(support)));
    EXPECT_NEAR(forward.collision[row], 1 / support, 1e-6 / support);
  }
}

// Tangents and second order: no key, no derivative; NaN in a tangent stays in the rows that see it.
TEST_P(RowPromises, TangentsKeepTheRowsPromises) {
  for (const std::string cap : {"", " cap=3"}) {  // a soft-cap has loops of its own
    const Data data(parse_problem("shape=1x2x9x7x8 mask=causal:bottom_right sink=1" + cap));
    const ForwardResult forward = run_forward(data);
    const reference::GradientInput upstream = random_gradient(data.problem);
    Tensors tangents = random_tangents(data.problem);
    tangents.k.assign(data.k.begin(), data.k.end());
    const TangentResult clean = run_tangent(data, forward, tangents);
    const BackwardResult second = run_second_order(data, forward, tangents, clean, upstream);
    for (std::size_t c = 0; c < 2 * 8; ++c) {  // the first two rows see nothing
      EXPECT_EQ(clean.output[c], 0);
      EXPECT_EQ(second.dq[c], 0);
    }
    // Key 5 of head 0 is seen by rows 7 and 8, the first of which shares its row tile with others.
    tangents.k[5 * 8] = static_cast<double>(kNaN);
    const TangentResult poisoned = run_tangent(data, forward, tangents);
    const BackwardResult second_poisoned =
        run_second_order(data, forward, tangents, poisoned, upstream);
    for (std::size_t row = 0; row < 18; ++row) {
      for (std::size_t c = 0; c < 8; ++c) {
        const std::size_t at = row * 8 + c;
        if (row == 7 || row == 8) {
          EXPECT_TRUE(std::isnan(poisoned.output[at]));
          EXPECT_TRUE(std::isnan(second_poisoned.dq[at]));
        } else {
          EXPECT_TRUE(same_bits(poisoned.output[at], clean.output[at])) << "row " << row << cap;
          EXPECT_TRUE(same_bits(second_poisoned.dq[at], second.dq[at])) << "row " << row << cap;
        }
      }
    }
  }
}

// Sets one number to NaN: exactly the rows that see it become NaN, others keep their bits.
void expect_poisoned_rows(const char* line, std::vector<float> Data::* argument, std::size_t row,
                          float poison, const std::function<bool(std::int64_t)>& sees) {
  Data data(parse_problem(line));
  const Problem& p = data.problem;
  const ForwardResult clean = run_forward(data);
  const BackwardResult clean_gradient = run_backward(data, clean);
  const std::size_t columns =
      (data.*argument).size() / static_cast<std::size_t>(argument == &Data::q ? p.queries : p.keys);
  for (std::size_t c = 0; c < columns; ++c) (data.*argument)[row * columns + c] = poison;
  data.refresh();
  const ForwardResult forward = run_forward(data);
  const BackwardResult backward = run_backward(data, forward);
  for (std::int64_t i = 0; i < p.queries; ++i) {
    const auto at = static_cast<std::size_t>(i * p.value_dim);
    if (sees(i)) {
      EXPECT_FALSE(std::isfinite(forward.output[at])) << "row " << i;
      EXPECT_FALSE(std::isfinite(backward.dq[static_cast<std::size_t>(i * p.dim)])) << "row " << i;
      if (argument != &Data::v) {
        EXPECT_FALSE(std::isfinite(forward.entropy[static_cast<std::size_t>(i)])) << "row " << i;
      }
      continue;
    }
    for (std::size_t c = 0; c < static_cast<std::size_t>(p.value_dim); ++c) {
      EXPECT_TRUE(same_bits(forward.output[at + c], clean.output[at + c])) << "row " << i;
    }
    EXPECT_TRUE(same_bits(forward.lse[static_cast<std::size_t>(i)],
                          clean.lse[static_cast<std::size_t>(i)]));
    for (std::size_t c = 0; c < static_cast<std::size_t>(p.dim); ++c) {
      const std::size_t q_at = static_cast<std::size_t>(i * p.dim) + c;
      EXPECT_TRUE(same_bits(backward.dq[q_at], clean_gradient.dq[q_at])) << "row " << i;
    }
  }
}

TEST_P(RowPromises, ANaNQueryPoisonsItsRowAlone) {
  for (const char* line : {"shape=1x1x60x300x16", "shape=1x1x60x300x16 mask=causal:top_left"}) {
    expect_poisoned_rows(line, &Data::q, 17, kNaN, [](std::int64_t i) { return i == 17; });
  }
}

TEST_P(RowPromises, ANaNKeyOrValuePoisonsTheRowsThatSeeIt) {
  struct Case {
    std::vector<const char*> lines;
    std::vector<std::int64_t> keys;
    std::int64_t past;  // keys before the first row's own
  };
  const std::vector<Case> cases = {
      {{"shape=1x1x300x300x16 mask=causal:top_left",
        "dt=bf16 shape=1x1x300x300x64 mask=causal:top_left"},
       {0, 130, 270, 299},
       0},
      // Few rows read keys and values in place; bf16 rows of whole vectors have their own products.
      {{"shape=1x1x4x300x32 mask=causal:bottom_right",
        "dt=bf16 shape=1x1x4x300x32 mask=causal:bottom_right"},
       {5, 297, 298, 299},
       296},
      {{"dt=bf16 shape=1x1x100x300x64 mask=causal:bottom_right"}, {5, 230, 299}, 200}};
  for (const Case& c : cases) {
    for (const char* line : c.lines) {
      for (const std::int64_t key : c.keys) {
        for (const auto argument : {&Data::k, &Data::v})
          expect_poisoned_rows(line, argument, static_cast<std::size_t>(key), kNaN,
                               [&](std::int64_t i) { return i + c.past >= key; });
      }
    }
  }
}

// Same in turn for keys: those that no row sees receive 0, and a NaN reaches the keys of its rows.
TEST_P(RowPromises, AKeyReceivesNothingFromRowsThatDoNotSeeIt) {
  for (const char* line :
       {"shape=1x2:1x40x300x16 mask=causal:top_left", "shape=1x2x3x300x32 mask=causal:top_left",
        "dt=bf16 shape=1x1x40x300x64 mask=causal:top_left,window=9:0",
        "shape=1x1x40x300x16 mask=causal:top_left bias=1 cap=5"}) {
    Data data(parse_problem(line));
    const Problem& p = data.problem;
    const auto heads = static_cast<std::size_t>(p.heads), keys = static_cast<std::size_t>(p.keys),
               queries = static_cast<std::size_t>(p.queries);
    const ForwardResult clean = run_forward(data);
    // The last queries and the first key they do not see; rows of weight 0 count for nothing.
    for (std::size_t last = queries - 1; last < heads * queries; last += queries) {
      std::fill_n(data.q.begin() + static_cast<std::int64_t>(last) * p.dim, p.dim, kNaN);
      data.row_weights[last] = last + 1 == heads * queries ? 1 : 0;
    }
    std::fill_n(data.k.begin() + p.queries * p.dim, p.dim, kNaN);
    data.refresh();
    const ForwardResult poisoned = run_forward(data);
    const auto view = row_view(data.options().mask, 0, p.queries - 1, p.queries, p.keys).keys;
    for (std::size_t j = 0; j < keys; ++j) {
      const float got = poisoned.received[(heads - 1) * keys + j];
      const auto key = static_cast<std::int64_t>(j);
      const bool is_hidden = p.bias && data.options().bias(0, 0, p.queries - 1, key) == -kInfinity;
      EXPECT_EQ(std::isnan(got), view.holds(key) && !is_hidden) << line << ", key " << j;
      EXPECT_TRUE(j < queries || got == 0) << line << ", key " << j;
      if (view.holds(key)) continue;
      EXPECT_TRUE(same_bits(got, clean.received[(heads - 1) * keys + j])) << line << ", key " << j;
    }
    for (std::size_t j = 0; j < (heads - 1) * keys; ++j)
      EXPECT_TRUE(std::isfinite(poisoned.received[j])) << line << ", key " << j;
  }
}

TEST_P(RowPromises, ANaNKeyMakesTheKeysOfItsRowsNaN) {
  // Rows from 30 on see key 30, and all keys up to their own.
  Data data(parse_problem("shape=1x1x60x60x16 mask=causal:top_left,window=20:0"));
  for (float& weight : data.row_weights) weight = 1;
  std::fill_n(data.k.begin() + 30 * 16, 16, kNaN);
  data.refresh();
  const ForwardResult forward = run_forward(data);
  for (std::size_t j = 0; j < 60; ++j)
    EXPECT_EQ(std::isnan(forward.received[j]), 10 <= j && j <= 50) << j;
}

TEST_P(RowPromises, HiddenKeysAndValuesHaveNoInfluence) {
  // 40 queries at the top left of 300 keys: keys from 40 on are hidden from all.
  for (const float poison : {kNaN, kInfinity, -kInfinity}) {
    for (const auto argument : {&Data::k, &Data::v}) {
      for (const std::size_t key : {40u, 45u, 299u}) {
        for (const char* line : {"shape=1x1x40x300x16 mask=causal:top_left",
                                 "dt=bf16 shape=1x1x40x300x64 mask=causal:top_left"}) {
          expect_poisoned_rows(line, argument, key, poison, [](std::int64_t) { return false; });
        }
      }
    }
  }
}

TEST_P(RowPromises, AnInfiniteLogitMakesTheRowNaN) {
  Data data(parse_problem("shape=1x1x3x5x4"));
  for (std::size_t c = 0; c < 4; ++c) data.q[4 + c] = kInfinity;
  data.refresh();
  const ForwardResult forward = run_forward(data);
  EXPECT_TRUE(std::isnan(forward.lse[1]) && std::isnan(forward.entropy[1]) &&
              std::isnan(forward.output[4]));
  EXPECT_TRUE(std::isfinite(forward.lse[0]) && std::isfinite(forward.lse[2]));
}

TEST_P(RowPromises, ZeroExtentsAreNoOps) {
  for (const char* line : {"shape=0x1x4x4x8", "shape=1x0x4x4x8", "shape=1x1x0x4x8"}) {
    const Data data(parse_problem(line));
    const ForwardResult forward = run_forward(data);
    EXPECT_TRUE(forward.output.empty());
    for (const float value : run_backward(data, forward).dk) EXPECT_EQ(value, 0);
  }
}

TEST_P(RowPromises, WithoutAGradientOfTheOutputThoseOfStatisticsRemain) {
  for (const char* line : {"shape=2x4:2x40x70x8 mask=causal:bottom_right sink=1 lambda=1",
                           "dt=bf16 shape=1x2x30x70x64 bias=1", "dt=f16 shape=1x2x30x70x24"}) {
    const Data data(parse_problem(line));
    reference::GradientInput gradient = random_gradient(data.problem);
    const Tensors tangents = random_tangents(data.problem);
    const reference::Input in = data.reference_input(), along = tangents.input(data.problem);
    const reference::Result want = reference::attention_forward(in, data.options());
    const auto expect_within_budget = [&] {
      const ForwardResult forward = run_forward(data);
      const BackwardResult got = check::run_backward(data, forward, gradient);
      const TangentResult tangent = run_tangent(data, forward, tangents);
      const Ratio second = second_order_error_over_budget(
          data.problem, want, tangent,
          reference::attention_second_order(in, data.options(), along, gradient),
          run_second_order(data, forward, tangents, tangent, gradient), arithmetic_of(data, want));
      for (const Ratio& ratio : {backward_error_over_budget(data, gradient, got), second})
        EXPECT_LE(ratio.worst, 1) << line << ": " << ratio.where;
      EXPECT_NE(got.dq, std::vector<float>(got.dq.size()));
    };
    gradient.d_output.clear();
    expect_within_budget();
    gradient.d_statistics.max_probability.clear();
    expect_within_budget();
  }
}

TEST_P(RowPromises, BitsDoNotDependOnTheThreads) {
  const ParallelFor backwards_on_two_threads = [](std::int64_t tasks, const auto& body) {
    std::thread odd([&] {
      for (std::int64_t task = tasks - 1; task >= 0; --task)
        if (task % 2) body(task);
    });
    for (std::int64_t task = tasks - 1; task >= 0; --task)
      if (task % 2 == 0) body(task);
    odd.join();
  };
  const Problem problem = parse_problem(
      "shape=2x2x400x1200x16 mask=causal:bottom_right rule=log_length bwd=1 second=1");
  expect_same_bits(problem, {}, backwards_on_two_threads);
}

// Also untouched memory between elements.
TEST_P(RowPromises, AnyStridesGiveTheSameBits) {
  for (const char* line :
       {"shape=2x3x30x70x12:20 mask=causal:bottom_right", "shape=2x3x30x72x12:20",
        "shape=2x2x3x300x32",  // few rows, which are not packed
        "dt=bf16 shape=1x2x30x70x64", "dt=bf16 shape=1x2x31x72x64", "dt=bf16 shape=1x2x3x300x64",
        "shape=2x16x30x72x16",  // 2 KB and more between rows
        "shape=1x4:2x2x100x32 cache=16"}) {
    Problem problem = parse_problem(line);
    problem.backward = problem.second_order = problem.cache_group == 0;
    for (const Place place : {Place::scattered, Place::backwards, Place::shifted, Place::apart}) {
      place_of_arrays = place;
      SCOPED_TRACE(std::string(line) + ", place " + std::to_string(static_cast<int>(place)));
      expect_same_bits(problem, relocated_passes());
    }
  }
}

}  // namespace
}  // namespace isentrope::check
