// Dropout's mask through the operator: queries of 0 have equal weights, unit values show each one.

#include "src/reference/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "tests/support/on_target.h"
#include "tests/support/same_bits.h"
#include "tools/check/run.h"

namespace isentrope::check {
namespace {

class Dropout : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(Dropout);

// Returns which weights are kept, [batch, head, query, key]. value_dim must equal the number of
// keys.
std::vector<bool> kept(const std::string& line) {
  Data data(parse_problem(line));
  const Problem& p = data.problem;
  std::fill(data.q.begin(), data.q.end(), 0.0f);
  for (std::size_t i = 0; i < data.v.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(p.value_dim);
    data.v[i] =
        static_cast<std::int64_t>(i) % p.value_dim == static_cast<std::int64_t>(row) % p.keys;
  }
  data.refresh();
  std::vector<bool> result;
  for (const float weight : run_forward(data).output) result.push_back(weight != 0);
  return result;
}

double mean(const std::vector<bool>& kept) {
  return static_cast<double>(std::count(kept.begin(), kept.end(), true)) /
         static_cast<double>(kept.size());
}

// Queries 3, 4, ... and keys 5, 6, ... of four heads in two batches, compared with the mask of all.
TEST_P(Dropout, ThePartOfASequenceHasThePartOfItsMask) {
  const std::vector<bool> all = kept("shape=2x4x40x300x8:300 dropout=0.5 dropout_seed=12884901895");
  for (const auto& [line, queries, keys, query, key] :
       {std::tuple{"shape=2x4x37x290x8:290 mask=offset=3:5", 37, 290, 3, 5},
        {"shape=2x4x1x32x8:32 mask=offset=39:0", 1, 32, 39, 0},
        {"shape=2x4x2x64x8:64 mask=offset=9:130", 2, 64, 9, 130},
        {"dt=bf16 shape=2x4:2x40x257x32:257 mask=offset=0:3", 40, 257, 0, 3},
        {"shape=2x4:1x1x299x16:299 mask=offset=17:1", 1, 299, 17, 1}}) {
    const std::vector<bool> part =
        kept(std::string(line) + " dropout=0.5 dropout_seed=12884901895");
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto columns = static_cast<std::size_t>(keys), rows = static_cast<std::size_t>(queries);
      const std::size_t column = i % columns + static_cast<std::size_t>(key);
      const std::size_t row = i / columns % rows + static_cast<std::size_t>(query);
      wrong += part[i] != all[(i / columns / rows * 40 + row) * 300 + column];
    }
    EXPECT_EQ(wrong, 0u) << line;
  }
}

TEST_P(Dropout, ASplitCacheHasTheMaskOfOneThatIsNot) {
  const std::string seed = " dropout=0.25 dropout_seed=9";
  const auto last = [&](const char* line) {
    const std::vector<bool> mask = kept(line + seed);
    return std::vector<bool>(mask.begin() + 4100, mask.begin() + 8200);
  };
  EXPECT_EQ(last("shape=1x2x1x4100x8:4100"), last("shape=1x2:1x1x4100x8:4100"));
  // 100 queries, whose keys are not split.
  const std::vector<bool> rows = kept("shape=1x1x100x4100x8:4100" + seed);
  const std::vector<bool> row = kept("shape=1x1x1x4100x8:4100 mask=offset=99:0" + seed);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), rows.begin() + 99 * 4100));
}

TEST_P(Dropout, KeepsItsShareOfEveryRowAndColumn) {
  constexpr std::int64_t n = 256;
  for (const auto& [text, p] : {std::pair{"0.1", 0.1}, {"0.5", 0.5}, {"0.9", 0.9}}) {
    const std::vector<bool> mask =
        kept("shape=1x4x256x256x8:256 dropout_seed=3 dropout=" + std::string(text));
    const auto off = [&](const std::vector<bool>& part) {
      const auto count = static_cast<double>(part.size());
      return std::abs(mean(part) - (1 - p)) / std::sqrt(p * (1 - p) / count);
    };
    EXPECT_LT(off(mask), 5);
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<bool> column;
      for (std::size_t at = static_cast<std::size_t>(i); at < mask.size(); at += n)
        column.push_back(mask[at]);
      EXPECT_LT(off(column), 5) << i;
      EXPECT_LT(off(std::vector<bool>(mask.begin() + i * n, mask.begin() + (i + 1) * n)), 5) << i;
    }
    // Neighbours along keys, queries and heads agree as often as independent weights.
    for (const std::size_t step : {1, 2, 3, 4, 256, 256 * 256}) {
      std::vector<bool> agree;
      for (std::size_t at = 0; at + step < mask.size(); ++at)
        agree.push_back(mask[at] == mask[at + step]);
      const double share = p * p + (1 - p) * (1 - p);
      const double sigma = std::sqrt(share * (1 - share) / static_cast<double>(agree.size()));
      EXPECT_LT(std::abs(mean(agree) - share), 5 * sigma) << step;
    }
  }
}

// Returns a weight's random bits, below 2^24: it is dropped once the threshold exceeds them.
std::uint32_t bits_of(AttentionOptions options, std::int64_t query, std::int64_t key) {
  std::uint32_t kept = 0, dropped = 1u << 24;
  while (dropped - kept > 1) {
    const std::uint32_t middle = (kept + dropped) / 2;
    options.dropout_p = std::ldexp(static_cast<float>(middle), -32);
    (reference::dropout_factor(options, 0, 0, query, key) == 0 ? dropped : kept) = middle;
  }
  return kept;
}

TEST_P(Dropout, KeepsAWeightWhoseBitsAreTheShareItself) {
  for (const char* line : {"shape=1x1x1x600x32", "shape=1x1x20x600x8"}) {
    const Data data(parse_problem(line));
    const auto upstream = random_gradient(data.problem);
    AttentionOptions options = data.options();
    options.dropout_p = 0x1p-8f;
    std::int64_t key = 0;  // of the first row
    while (reference::dropout_factor(options, 0, 0, 0, key) != 0) ++key;
    ASSERT_LT(key, data.problem.keys);
    const std::uint32_t bits = bits_of(options, 0, key);
    const auto dropped_at = [&](std::uint32_t share) {
      options.dropout_p = std::ldexp(static_cast<float>(share), -32);
      const ForwardResult forward = run_forward(data, options);
      return std::pair{forward.output, run_backward(data, forward, upstream, options).dv};
    };
    // Changing the threshold by one changes no other weight by a bit.
    const auto before = dropped_at(bits - 1), at = dropped_at(bits), behind = dropped_at(bits + 1);
    EXPECT_EQ(before, at) << line;
    EXPECT_NE(at.first, behind.first) << line;
    EXPECT_NE(at.second, behind.second) << line;
  }
}

TEST_P(Dropout, LeavesTheStatisticsAlone) {
  const std::string line = "shape=2x4:2x70x300x16 mask=causal:bottom_right sink=1 cap=9";
  const ForwardResult with = run_forward(Data(parse_problem(line + " dropout=0.5 dropout_seed=2")));
  const ForwardResult without = run_forward(Data(parse_problem(line + " dropout_seed=2")));
  expect_same_statistics(with, without);
  EXPECT_NE(with.output, without.output);
  EXPECT_EQ(without.output, run_forward(Data(parse_problem(line))).output);
}

// The mean over many seeds is the output without dropout, and each seed has its own mask.
TEST_P(Dropout, TheMeanOfManySeedsIsTheOutputWithout) {
  const std::string line = "shape=1x2x6x40x8";
  const ForwardResult want = run_forward(Data(parse_problem(line)));
  constexpr int kSeeds = 1000;
  std::vector<double> sums(want.output.size()), squares(want.output.size());
  for (int seed = 0; seed < kSeeds; ++seed) {
    const std::string dropped = line + " dropout=0.3 dropout_seed=" +
                                std::to_string(static_cast<std::uint64_t>(seed) << 31);
    const ForwardResult got = run_forward(Data(parse_problem(dropped)));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double x = static_cast<double>(got.output[i]);
      sums[i] += x;
      squares[i] += x * x;
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double of_mean = sums[i] / kSeeds, variance = squares[i] / kSeeds - of_mean * of_mean;
    EXPECT_GT(variance, 0);
    EXPECT_LT(std::abs(of_mean - static_cast<double>(want.output[i])),
              5 * std::sqrt(variance / kSeeds));
  }
}

TEST_P(Dropout, BitsDoNotDependOnTheThreads) {
  for (const char* line : {"shape=2x4:2x300x700x16 dropout=0.1 dropout_seed=4 bwd=1",
                           "dt=bf16 shape=1x4:2x1x5000x32 dropout=0.1 dropout_seed=4 bwd=1"}) {
    expect_same_bits(parse_problem(line), {}, run_on_pool);
  }
}

// A dropped NaN value makes its row NaN, because 0 times NaN is NaN.
TEST_P(Dropout, AValueThatIsNoNumberIsOneWhereItIsDropped) {
  Data data(parse_problem("shape=1x1x64x64x8 dropout=0.5 dropout_seed=4"));
  data.v[8 * 30 + 2] = std::numeric_limits<float>::quiet_NaN();
  data.refresh();
  const ForwardResult result = run_forward(data);
  for (std::size_t i = 0; i < result.output.size(); ++i)
    EXPECT_EQ(std::isnan(result.output[i]), i % 8 == 2) << i;
}

}  // namespace
}  // namespace isentrope::check
