// The monoid of normalised states: its laws, splits of a call's keys, and its bytes.

#include "isentrope/attention_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <functional>
#include <random>

#include "isentrope/error.h"
#include "tests/support/message_of.h"
#include "tools/check/judge.h"

namespace isentrope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Logits of a row and values of their keys.
using Row = std::vector<std::pair<double, float>>;

// Returns the state of one row, by definition.
AttentionState state_of(const Row& keys) {
  AttentionState state({1, 1, 1, 1});
  RowState row;
  for (const auto& [z, value] : keys) row = merge(row, row_state_of(z));
  state.statistics[0] = finalize(row);
  double sum = 0;
  for (const auto& [z, value] : keys)
    sum += std::exp(z - state.statistics[0].lse) * static_cast<double>(value);
  state.output[0] = static_cast<float>(sum);
  return state;
}

Row generated_row() {
  const auto logit =
      rc::gen::map(rc::gen::inRange(-100000, 100001), [](int x) { return x * 1e-3; });
  const auto value = rc::gen::map(rc::gen::inRange(-1000, 1001),
                                  [](int x) { return static_cast<float>(x) * 0.01f; });
  return *rc::gen::container<Row>(rc::gen::pair(logit, value));
}

AttentionState generated() { return state_of(generated_row()); }

bool same_bits(const AttentionState& a, const AttentionState& b) {
  return to_bytes(a) == to_bytes(b);
}

void expect_close(const AttentionState& a, const AttentionState& b) {
  const RowStats &x = a.statistics[0], &y = b.statistics[0];
  RC_ASSERT(x.support == y.support);
  RC_ASSERT(x.max_logit == y.max_logit);
  if (x.support == 0) return;
  RC_ASSERT(std::abs(x.lse - y.lse) <= 1e-13 * (1 + std::abs(x.lse)));
  RC_ASSERT(std::abs(x.entropy - y.entropy) <= 1e-12 * (1 + x.entropy + std::abs(x.lse)));
  RC_ASSERT(std::abs(x.collision - y.collision) <= 1e-12 * x.collision * (1 + std::abs(x.lse)));
  RC_ASSERT(std::abs(x.max_probability - y.max_probability) <=
            1e-12 * x.max_probability * (1 + std::abs(x.lse)));
  RC_ASSERT(std::abs(x.variance - y.variance) <= 1e-11 * (1 + x.variance + x.lse * x.lse));
  RC_ASSERT(std::abs(a.output[0] - b.output[0]) <= 1e-5);
}

RC_GTEST_PROP(AttentionState, RowsWithoutKeysAreAnExactIdentity, ()) {
  const AttentionState a = generated(), none({1, 1, 1, 1});
  RC_ASSERT(same_bits(merge(a, none), a));
  RC_ASSERT(same_bits(merge(none, a), a));
}

RC_GTEST_PROP(AttentionState, MergeIsExactlyCommutative, ()) {
  const AttentionState a = generated(), b = generated();
  RC_ASSERT(same_bits(merge(a, b), merge(b, a)));
}

TEST(AttentionState, MergeCommutesInTheBitsOfNaNAndOfZero) {
  const AttentionState positive = state_of({{0.0, 1}}), negative = state_of({{-0.0, 1}});
  const AttentionState nan = state_of({{NAN, 1}}),
                       other_nan = state_of({{-kInfinity, 1}, {-NAN, 1}, {kInfinity, 1}});
  EXPECT_TRUE(same_bits(merge(positive, negative), merge(negative, positive)));
  EXPECT_TRUE(same_bits(merge(nan, other_nan), merge(other_nan, nan)));
}

RC_GTEST_PROP(AttentionState, MergeIsAssociative, ()) {
  const AttentionState a = generated(), b = generated(), c = generated();
  expect_close(merge(merge(a, b), c), merge(a, merge(b, c)));
}

RC_GTEST_PROP(AttentionState, BytesComeBack, ()) {
  const AttentionState a = generated();
  RC_ASSERT(same_bits(state_from_bytes(to_bytes(a)), a));
}

RC_GTEST_PROP(AttentionState, NormalisedAndRawStatesMergeAlike, ()) {
  const Row left = generated_row(), right = generated_row();
  Row both = left;
  both.insert(both.end(), right.begin(), right.end());
  expect_close(merge(state_of(left), state_of(right)), state_of(both));
}

TEST(AttentionState, NaNPoisonsTheRowAndMinusInfinityWeighsNothing) {
  const AttentionState some = state_of({{1, 3}, {2, 4}}), nan = state_of({{NAN, 1}});
  for (const AttentionState& merged : {merge(some, nan), merge(nan, some)}) {
    const RowStats& stats = merged.statistics[0];
    EXPECT_TRUE(std::isnan(stats.lse) && std::isnan(stats.entropy) && std::isnan(stats.collision) &&
                std::isnan(stats.max_logit) && std::isnan(stats.variance) &&
                std::isnan(merged.output[0]));
  }
  const AttentionState weightless = state_of({{-kInfinity, 1}, {-kInfinity, 1}});
  const AttentionState merged = merge(weightless, some);
  EXPECT_EQ(merged.statistics[0].support, 4);
  EXPECT_EQ(merged.statistics[0].entropy, some.statistics[0].entropy);
  EXPECT_EQ(merged.output[0], some.output[0]);
  EXPECT_EQ(merge(weightless, weightless).statistics[0].lse, -kInfinity);
}

// Returns the state of keys begin ... end - 1 of an unpaged problem, as a call of its own.
AttentionState state_of_keys(const check::Data& data, std::int64_t begin, std::int64_t end) {
  AttentionInput in = data.input();
  AttentionOptions options = data.options();
  const std::int64_t keys = in.k.extents[2];
  for (ConstTensor* tensor : {&in.k, &in.v}) {
    tensor->data = static_cast<const std::byte*>(tensor->data) +
                   begin * tensor->strides[2] * size_of(tensor->type);
    tensor->extents[2] = end - begin;
  }
  const auto cut = [&](auto& view) {
    if (view) {
      view.data = &view.data[begin];
      view.extents[3] = end - begin;
    }
  };
  cut(options.attn_mask);
  options.bias.data = static_cast<const std::byte*>(options.bias.data) +
                      begin * options.bias.strides[3] * size_of(options.bias.type);
  options.bias.extents[3] = end - begin;
  options.sinks = {};
  // The last query of the whole call is at its last key; in a part of it, positions are said.
  if (options.mask.causal != Causal::top_left) options.mask.query_offset += keys - in.q.extents[2];
  options.mask.sequence_keys = options.mask.key_offset + keys;
  options.mask.key_offset += begin;
  return attention_state(in, options);
}

AttentionState random_tree(const check::Data& data, std::int64_t begin, std::int64_t end,
                           std::mt19937& random) {
  if (end - begin <= 1 || random() % 5 == 0) return state_of_keys(data, begin, end);
  // Cuts at the ends give parts without keys.
  const auto cut = std::uniform_int_distribution<std::int64_t>(begin, end)(random);
  if (cut == begin || cut == end)
    return merge(state_of_keys(data, begin, end), state_of_keys(data, cut, cut));
  return merge(random_tree(data, begin, cut, random), random_tree(data, cut, end, random));
}

check::ForwardResult result_of(const AttentionState& state, const check::ForwardResult& whole) {
  check::ForwardResult result;
  result.output = state.output;
  result.lambda = whole.lambda;
  for (const RowStats& stats : state.statistics) {
    for_each_statistic(
        [&]<typename T>(const Statistic& statistic, std::vector<T>& values) {
          if (statistic.of_row) values.push_back(static_cast<T>(stats.*statistic.of_row));
        },
        result);
    result.support.push_back(stats.support);
  }
  return result;
}

TEST(AttentionState, SplittingKeysAnywhereGivesTheWholeCall) {
  double worst = 0;
  for (const char* line :
       {"shape=2x4:2x5x300x16",
        "shape=1x2x40x40x16:9 mask=causal:top_left rule=entropy_invariant(base=64)",
        "shape=2x2x3x120x8 mask=left_padding,right_padding rule=logn(train_len=16)",
        "shape=1x2x40x40x16 mask=window=7:3 rule=entropy_invariant(base=32)",
        "shape=2x2x9x120x8 mask=causal:bottom_right rule=entropy_invariant(base=32)",
        "shape=2x2x9x120x8 mask=causal:bottom_right,window=40:-1,dilation=3,left_padding",
        "shape=2x2x9x120x8 mask=causal:bottom_right,chunk=50,right_padding rule=logn(train_len=16)",
        "shape=2x2x70x120x8 mask=causal:bottom_right,prefix=60,left_padding rule=log_length",
        "shape=2x2x70x120x8 mask=window=-1:5,prefix=60 rule=log_length",
        "shape=1x2x30x70x16 mask=causal:top_left,window=20:0,offset=40:3 "
        "rule=entropy_invariant(base=32)",
        "shape=1x2x20x90x16 bias=1 admitted=1 cap=5", "shape=1x3x9x33x16 sink=1 lambda=1",
        "dt=bf16 shape=1x2x4x200x32 rule=entropy_invariant(base=512)",
        "dt=f16 shape=1x2x4x50x8 scale=100"}) {
    const check::Data data(check::parse_problem(line));
    const check::ForwardResult whole = check::run_forward(data);
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      AttentionState state = random_tree(data, 0, data.problem.keys, random);
      if (data.problem.sink) state = with_sinks(std::move(state), data.options().sinks);
      const check::Ratio ratio = check::forward_error_over_budget(data, result_of(state, whole));
      EXPECT_LE(ratio.worst, 1) << line << " seed " << seed << ": " << ratio.where;
      worst = std::max(worst, ratio.worst);
    }
  }
  std::printf("largest error over budget: %.3f\n", worst);
}

TEST(AttentionState, BadArgumentsAreNamed) {
  const check::Data data(check::parse_problem("shape=1x2x3x4x8 sink=1"));
  EXPECT_EQ(
      message_of([&] { (void)attention_state(data.input(), data.options()); }),
      "[attention_state] sinks must be absent, since they count once and not once for each part: "
      "add them to the merged state by with_sinks(); got sinks");
  AttentionInput in = data.input();
  in.k.extents[3] = 7;
  EXPECT_EQ(message_of([&] { (void)attention_state(in, {}); }),
            "[attention_state] k must have shape [1, 2, 4, 8]; got [1, 2, 4, 7]");
  const AttentionState one({1, 1, 1, 1}), two({1, 2, 1, 1});
  EXPECT_EQ(message_of([&] { (void)merge(one, two); }),
            "[merge] both states must have the same shape; got [1, 1, 1, 1] and [1, 2, 1, 1]");
  AttentionState many = one;
  many.statistics[0].support = std::int64_t{1} << 62;
  EXPECT_EQ(message_of([&] { (void)merge(many, many); }),
            "[merge] the supports must add up to less than 2^63; got 4611686018427387904 and "
            "4611686018427387904");
  EXPECT_EQ(message_of([&] { (void)with_sinks(two, data.options().sinks); }), "");
  EXPECT_EQ(message_of([&] { (void)with_sinks(one, data.options().sinks); }),
            "[with_sinks] sinks must have one logit for each of the 1 heads; got 2");
  EXPECT_EQ(message_of([&] { (void)with_sinks(one, {}); }),
            "[with_sinks] sinks must have one logit for each of the 1 heads; got none");
  EXPECT_EQ(message_of([] { AttentionState({1, -1, 1, 1}); }),
            "[AttentionState] the shape must have no negative extent and at most 2^48 elements; "
            "got [1, -1, 1, 1]");
}

TEST(AttentionState, HostileBytesAreRejected) {
  const std::vector<std::byte> good = to_bytes(state_of({{1, 3}, {2, 4}}));
  const auto with = [&](std::size_t at, std::uint64_t word, std::size_t size) {
    std::vector<std::byte> bytes = good;
    for (std::size_t i = 0; i < size; ++i)
      bytes[at + i] = static_cast<std::byte>(word >> 8 * i & 0xff);
    return message_of([&] { (void)state_from_bytes(bytes); });
  };
  EXPECT_EQ(with(0, 'i', 1),
            "[state_from_bytes] the bytes must begin with ISENSTAT; got something else");
  EXPECT_EQ(with(8, 1, 4), "[state_from_bytes] the version must be 3; got 1");
  EXPECT_EQ(with(12, 4, 4), "[state_from_bytes] a row must have 7 numbers; got 4");
  EXPECT_EQ(with(16, ~std::uint64_t{0}, 8),
            "[state_from_bytes] no extent must be negative; got -1");
  EXPECT_NE(with(16, std::uint64_t{1} << 62, 8), "");
  EXPECT_EQ(with(16, 2, 8),
            "[state_from_bytes] the shape takes 136 bytes after the header; got 68");
  EXPECT_EQ(with(48, std::bit_cast<std::uint64_t>(kInfinity), 8),
            "[state_from_bytes] lse must not be +inf; got that in row 0");
  EXPECT_NE(with(56, std::bit_cast<std::uint64_t>(-1.0), 8), "");
  EXPECT_EQ(
      with(104, 0, 8),
      "[state_from_bytes] a row without keys must be empty; got statistics or an output in row 0");
  EXPECT_EQ(with(104, ~std::uint64_t{0}, 8),
            "[state_from_bytes] the support must not be negative; got -1 in row 0");
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(message_of([&] { (void)state_from_bytes(std::span(good).first(size)); }), "") << size;
  }
}

}  // namespace
}  // namespace isentrope
