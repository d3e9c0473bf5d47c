// The monoid's laws, as properties of generated rows.

#include "isentrope/row_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "isentrope/statistics.h"

namespace isentrope {
namespace {

// Logits of every magnitude, with ties and -inf.
rc::Gen<double> logit() {
  return rc::gen::weightedOneOf<double>(
      {{8, rc::gen::map(rc::gen::inRange(-1000000, 1000001), [](int x) { return x * 1e-5; })},
       {3, rc::gen::map(rc::gen::inRange(-1000, 1001), [](int x) { return x * 1.0; })},
       {2, rc::gen::element(0.0, -0.0, 1.5, -3.25)},
       {1, rc::gen::just(-std::numeric_limits<double>::infinity())}});
}

using Logits = std::vector<double>;
rc::Gen<Logits> row() { return rc::gen::container<Logits>(logit()); }

RowState state_of(const Logits& logits) {
  RowState state;
  for (const double z : logits) state = merge(state, row_state_of(z));
  return state;
}

// The laws hold for statistics; origins of the sums may differ.
void expect_same(const RowState& a, const RowState& b) {
  const RowStats x = finalize(a), y = finalize(b);
  RC_ASSERT(x.support == y.support);
  RC_ASSERT(x.max_logit == y.max_logit || (std::isnan(x.max_logit) && std::isnan(y.max_logit)));
  if (a.s0 == 0) {  // only -inf logits: lse is -inf, the rest is 0 / 0
    RC_ASSERT(b.s0 == 0);
    return;
  }
  const double mean = a.s1 / std::max(a.s0, 1.0);
  RC_ASSERT(std::abs(x.lse - y.lse) <= 1e-14 * (1 + std::abs(x.lse)));
  RC_ASSERT(std::abs(x.entropy - y.entropy) <= 1e-13 * (1 + x.entropy));
  RC_ASSERT(std::abs(x.collision - y.collision) <= 1e-13 * x.collision);
  RC_ASSERT(std::abs(x.variance - y.variance) <= 1e-12 * (1 + x.variance + mean * mean));
}

RC_GTEST_PROP(RowState, TheEmptyRowIsAnExactIdentity, ()) {
  const RowState a = state_of(*row());
  RC_ASSERT(merge(a, RowState{}) == a);
  RC_ASSERT(merge(RowState{}, a) == a);
}

RC_GTEST_PROP(RowState, MergeIsExactlyCommutative, ()) {
  const RowState a = state_of(*row()), b = state_of(*row());
  RC_ASSERT(merge(a, b) == merge(b, a));
}

RC_GTEST_PROP(RowState, MergeIsAssociative, ()) {
  const RowState a = state_of(*row()), b = state_of(*row()), c = state_of(*row());
  expect_same(merge(merge(a, b), c), merge(a, merge(b, c)));
}

RC_GTEST_PROP(RowState, SplittingARowAnywhereGivesTheWholeRow, ()) {
  const Logits logits = *row();
  const std::size_t cut = *rc::gen::inRange<std::size_t>(0, logits.size() + 1);
  const Logits head(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(cut));
  const Logits tail(logits.begin() + static_cast<std::ptrdiff_t>(cut), logits.end());
  expect_same(merge(state_of(tail), state_of(head)), state_of(logits));
}

RC_GTEST_PROP(RowState, StatisticsStayWithinTheirBounds, ()) {
  const Logits logits = *row();
  const RowState state = state_of(logits);
  RC_PRE(state.s0 > 0);
  const RowStats stats = finalize(state);
  const double support = static_cast<double>(stats.support);
  RC_ASSERT(stats.entropy >= 0);
  RC_ASSERT(stats.entropy <= std::log(support) + 1e-12);
  RC_ASSERT(stats.collision >= (1 - 1e-12) / support);
  RC_ASSERT(stats.collision <= 1 + 1e-12);
  RC_ASSERT(stats.entropy >= -std::log(stats.collision) - 1e-12);
  // The mean of p under p is the collision: at most the largest p, and at least its square.
  RC_ASSERT(stats.max_probability >= stats.collision * (1 - 1e-12));
  RC_ASSERT(stats.max_probability * stats.max_probability <= stats.collision * (1 + 1e-12));
  const double of_largest = std::exp(stats.max_logit - stats.lse);
  RC_ASSERT(std::abs(stats.max_probability - of_largest) <=
            1e-14 * of_largest * (1 + std::abs(stats.lse)));
  RC_ASSERT(stats.variance >= 0);
}

RC_GTEST_PROP(RowState, ShiftingEveryLogitMovesOnlyTheLse, ()) {
  const Logits logits = *row();
  const int shift = *rc::gen::inRange(-50, 51);
  Logits shifted = logits;
  for (double& z : shifted) z += shift;
  const RowState a = state_of(logits), b = state_of(shifted);
  RC_PRE(a.s0 > 0);
  RC_ASSERT(std::abs(finalize(b).lse - finalize(a).lse - shift) <= 1e-9);
  RC_ASSERT(std::abs(finalize(b).entropy - finalize(a).entropy) <= 1e-9);
  RC_ASSERT(std::abs(finalize(b).collision - finalize(a).collision) <= 1e-9);
}

TEST(RowState, DistancesAreMeansUnderTheWeights) {
  const double third = std::log(3.0);
  const RowState near = row_state_of(third, 2), far = row_state_of(0, 10);
  EXPECT_DOUBLE_EQ(finalize(merge(near, far)).distance, 0.75 * 2 + 0.25 * 10);
  EXPECT_DOUBLE_EQ(finalize(merge(far, near)).distance, 4);
  EXPECT_EQ(finalize(near).distance, 2);
}

TEST(RowState, EmptyRow) {
  const RowStats stats = finalize(RowState{});
  EXPECT_EQ(stats.lse, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(stats.max_logit, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(stats.entropy, 0);
  EXPECT_EQ(stats.collision, 0);
  EXPECT_EQ(stats.variance, 0);
  EXPECT_EQ(stats.distance, 0);
  EXPECT_EQ(stats.max_probability, 0);
  EXPECT_EQ(stats.support, 0);
}

TEST(RowState, EqualLogitsHaveTheEntropyOfTheirNumber) {
  const RowStats stats = finalize(state_of(Logits(1000, 1e6)));
  EXPECT_NEAR(stats.entropy, std::log(1000), 1e-12);
  EXPECT_NEAR(stats.collision, 1e-3, 1e-15);
  EXPECT_NEAR(stats.max_probability, 1e-3, 1e-15);
  EXPECT_EQ(stats.variance, 0);
}

TEST(RowState, OneNaNMakesEveryStatisticNaN) {
  for (const Logits& logits : {Logits{NAN}, Logits{1, NAN}, Logits{NAN, 1}, Logits{1, NAN, 1e9},
                               Logits{-std::numeric_limits<double>::infinity(), NAN, 1}}) {
    const RowStats stats = finalize(state_of(logits));
    EXPECT_TRUE(std::isnan(stats.lse) && std::isnan(stats.entropy) && std::isnan(stats.collision) &&
                std::isnan(stats.max_logit) && std::isnan(stats.variance) &&
                std::isnan(stats.distance) && std::isnan(stats.max_probability));
  }
}

}  // namespace
}  // namespace isentrope
