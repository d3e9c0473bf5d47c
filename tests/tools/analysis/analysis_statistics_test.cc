// Statistics of verdicts: known values, and false-positive rates without an effect.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tools/analysis/statistics.h"

namespace isentrope::analysis {
namespace {

// Student's own example (1908), hours of sleep: t = 4.0621 with 9 degrees of freedom.
TEST(Paired, IsStudents) {
  const Paired sleep = paired({1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4});
  EXPECT_EQ(sleep.df(), 9);
  EXPECT_NEAR(sleep.mean / sleep.se, 4.0621, 1e-4);
  EXPECT_NEAR(sleep.p, 0.00283289, 1e-7);
  EXPECT_NEAR(sleep.low, 0.7001142, 1e-6);
  EXPECT_NEAR(sleep.high, 2.4598858, 1e-6);
  EXPECT_TRUE(sleep.undecided.empty());
}

TEST(Paired, SaysWhyItSaysNothing) {
  EXPECT_EQ(paired({}).undecided, "no seed is shared");
  EXPECT_EQ(paired({5}).undecided, "fewer than 3 seeds");
  EXPECT_TRUE(std::isnan(paired({5}).se));
  EXPECT_EQ(paired({5, 5.1}).undecided, "fewer than 3 seeds");
  EXPECT_GT(paired({5, 5.1}).se, 0);
  EXPECT_EQ(paired({0.2, 50.2 - 50, 60.2 - 60}).undecided, "all differences are equal");
  EXPECT_EQ(paired({1, 2, std::nan("")}).undecided, "a number is not finite");
  for (const auto& few : {paired({5, 5.1}), paired({1, 1, 1}), paired({1, INFINITY, 3})})
    EXPECT_TRUE(std::isnan(few.p) && std::isnan(few.low) && std::isnan(few.high));
}

// Same as R's p.adjust; NaN is not counted.
TEST(Family, AdjustsAsPublished) {
  const std::vector<double> p = {0.01, 0.04, std::nan(""), 0.03, 0.005};
  const std::vector<double> by_holm = holm(p), by_rate = benjamini_hochberg(p);
  const double expected_holm[] = {0.03, 0.06, 0, 0.06, 0.02};
  const double expected_rate[] = {0.02, 0.04, 0, 0.04, 0.02};
  for (const std::size_t i : {0U, 1U, 3U, 4U}) {
    EXPECT_NEAR(by_holm[i], expected_holm[i], 1e-12) << i;
    EXPECT_NEAR(by_rate[i], expected_rate[i], 1e-12) << i;
  }
  EXPECT_TRUE(std::isnan(by_holm[2]) && std::isnan(by_rate[2]));
  EXPECT_EQ(holm({0.9, 0.8}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(holm({}).empty());
}

// Returns p-values of a study without effects, by cell and rule, at five correlated lengths.
std::vector<double> null_table(std::mt19937_64& random, std::size_t seeds, double correlation) {
  constexpr int kRows = 4, kLengths = 5;
  std::normal_distribution<double> normal;
  std::vector<double> p;
  for (int row = 0; row < kRows; ++row) {
    std::vector<std::vector<double>> differences(kLengths, std::vector<double>(seeds));
    for (std::size_t seed = 0; seed < seeds; ++seed) {
      const double shared = normal(random);
      for (auto& at_length : differences) {
        at_length[seed] =
            std::sqrt(correlation) * shared + std::sqrt(1 - correlation) * normal(random);
      }
    }
    for (const auto& at_length : differences) p.push_back(paired(at_length).p);
  }
  return p;
}

// Returns the percentage of studies of 3 to 8 seeds with any p below 0.05.
double called(std::vector<double> (*adjust)(const std::vector<double>&)) {
  constexpr int kTables = 10000;
  std::mt19937_64 random(1);
  int tables = 0;
  for (int i = 0; i < kTables; ++i) {
    const std::vector<double> adjusted =
        adjust(null_table(random, 3 + static_cast<std::size_t>(i) % 6, 0.3 * (i % 4)));
    bool any = false;
    for (const double p : adjusted) any = any || p < 0.05;
    tables += any ? 1 : 0;
  }
  return 100.0 * tables / kTables;
}

std::vector<double> unadjusted(const std::vector<double>& p) { return p; }

TEST(Family, CallsNothingWhereNothingIsInNineteenOfTwentyTables) {
  EXPECT_LE(called(holm), 5.5);
  EXPECT_LE(called(benjamini_hochberg), 5.5);
  EXPECT_GT(called(unadjusted), 25);  // the test has power
}

// A criterion of two standard errors gives too many false positives even for one difference.
TEST(Paired, IsRightFiveTimesInAHundredWhereNothingIs) {
  constexpr int kTables = 10000;
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  int by_t = 0, by_errors = 0;
  for (int i = 0; i < kTables; ++i) {
    const Paired three = paired({normal(random), normal(random), normal(random)});
    by_t += three.p < 0.05 ? 1 : 0;
    by_errors += std::abs(three.mean) > 2 * three.se ? 1 : 0;
  }
  EXPECT_NEAR(100.0 * by_t / kTables, 5, 0.7);
  EXPECT_NEAR(100.0 * by_errors / kTables, 18.4, 1.2);
}

}  // namespace
}  // namespace isentrope::analysis
