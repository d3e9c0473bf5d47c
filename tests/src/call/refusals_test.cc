// Invalid arguments of calls and problem lines are refused by name, before anything is written.

#include "tests/support/refusals.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "isentrope/derivatives.h"
#include "tests/support/list_of.h"
#include "tests/support/words.h"
#include "tools/check/measure.h"

namespace isentrope::check {
namespace {

constexpr const char* kCall = "shape=1x2x3x4x8";
constexpr std::array<std::int64_t, 1> kTwo = {2};
constexpr std::array<std::int64_t, 3> kShort = {0, 1, 2}, kBack = {0, 4, 3}, kLate = {1, 2, 3},
                                      kDocuments = {0, 2, 4};
constexpr std::array<std::int64_t, 2> kWhole = {0, 3}, kKeys = {0, 4};
constexpr std::int64_t kFar = (std::int64_t{1} << 60) + 1;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Refusals, OfCallsNameTheArgumentAndLeaveTheOutput) {
  expect_refusals(kCall, {{"q must have no negative extent; got [1, 2, -3, 8]",
                           [](auto& in, auto&) { in.q.extents[2] = -3; }},
                          {"k must have at most 2^56 elements; got [1, 2, 18014398509481984, 8]",
                           [](auto& in, auto&) { in.k.extents[2] = std::int64_t{1} << 54; }},
                          {"v must have shape [1, 1, 4, 8]; got [1, 2, 4, 8]",
                           [](auto& in, auto&) { in.k.extents[1] = 1; }},
                          {"q must have data; got a null pointer",
                           [](auto& in, auto&) { in.q.data = nullptr; }},
                          {"q must have a head dimension of at least 1; got [1, 2, 3, 0]",
                           [](auto& in, auto&) { in.q.extents[3] = 0; }},
                          {"v must have a value dimension of at least 1; got [1, 2, 4, 0]",
                           [](auto& in, auto&) { in.v.extents[3] = 0; }},
                          {"pages.keys must be 0 without block_table; got 4",
                           [](auto& in, auto&) { in.pages.keys = 4; }},
                          {"rule must have a number for each of the 2 heads, or one for all; got 3",
                           [](auto&, auto& o) { o.rule = ScaleRule::parse("ssmax(s=[1,2,3])"); }},
                          {"key_offset must be at most 2^60; got 1152921504606846977",
                           [](auto&, auto& o) { o.mask.key_offset = kFar; }}});
}

TEST(Refusals, OfNumbersSayTheirRange) {
  for (const float number : {-0.5f, kInfinity, -kInfinity, std::nanf("")}) {
    const std::string got = "; got " + std::to_string(number);
    expect_refusals(kCall, {{"dropout_p must be at least 0 and below 1" + got,
                             [=](auto&, auto& o) { o.dropout_p = number; }},
                            {"soft_cap must be finite and not negative" + got,
                             [=](auto&, auto& o) { o.soft_cap = number; }}});
  }
  expect_refusals(kCall, {{"dropout_p must be at least 0 and below 1; got 1.000000",
                           [](auto&, auto& o) { o.dropout_p = 1; }}});
}

// Tangents of what the call does not have, and of a statistic without a derivative.
TEST(Refusals, OfTangents) {
  const Data data(parse_problem(kCall));
  std::array<float, 48> numbers{};
  const View<const float, 3> of_rows{numbers.data(), {1, 2, 3}, {6, 3, 1}};
  const AttentionTangentInput given{
      .output = contiguous_view<const float, 4>(numbers.data(), {1, 2, 3, 8}),
      .statistics = {.lse = of_rows}};
  AttentionTangentInput biased = given, with_sinks = given;
  biased.tangents.bias = contiguous_view<const float, 4>(numbers.data(), {1, 2, 3, 4});
  with_sinks.tangents.sinks = contiguous_view<const float, 1>(numbers.data(), {2});
  std::array<float, 48> results{};
  std::array<std::int64_t, 6> support{};
  AttentionTangentOutput result{contiguous_view<float, 4>(results.data(), {1, 2, 3, 8})};
  const auto message = [&](const AttentionTangentInput& tangent) {
    return message_of([&] { attention_tangent(data.input(), data.options(), tangent, result); });
  };
  expect_words(message(biased), {"tangent of bias must be absent"});
  expect_words(message(with_sinks), {"tangent of sinks must be absent"});
  result.statistics.support = contiguous_view<std::int64_t, 3>(support.data(), {1, 2, 3});
  EXPECT_EQ(message(given),
            "[attention_tangent] tangent of support must be absent: the statistic "
            "has no derivative; got one");
}

// Masks that contradict themselves or the call.
TEST(Refusals, OfMasks) {
  for (const auto& [name, part] : {std::pair{"dilation", &Mask::dilation},
                                   {"chunk_size", &Mask::chunk_size},
                                   {"query_offset", &Mask::query_offset},
                                   {"key_offset", &Mask::key_offset},
                                   {"sequence_keys", &Mask::sequence_keys}})
    expect_refusals(kCall, {{name + std::string(" must not be negative; got -1"),
                             [part](auto&, auto& o) { o.mask.*part = -1; }}});
  expect_refusals(
      kCall,
      {{"sequence_keys must be at least 6, the number of keys up to the end of this call; got 5",
        [](auto&, auto& o) { o.mask.key_offset = 2, o.mask.sequence_keys = 5; }},
       {"query_offset must leave the 3 queries within the 10 keys of the sequence under "
        "bottom_right; got 8",
        [](auto&, auto& o) {
          o.mask = {.causal = Causal::bottom_right, .query_offset = 8, .sequence_keys = 10};
        }},
       {"cu_seqlens_k must be given with cu_seqlens_q; got none",
        [](auto&, auto& o) { o.mask.cu_seqlens_q = list_of(kWhole); }},
       {"cu_seqlens_q must be given with cu_seqlens_k; got none",
        [](auto&, auto& o) { o.mask.cu_seqlens_k = list_of(kKeys); }},
       {"cu_seqlens_q must begin with 0 and end with 3; got no elements", [](auto&, auto& o) {
          o.mask.cu_seqlens_q = o.mask.cu_seqlens_k = list_of(kWhole);
          o.mask.cu_seqlens_q.extents[0] = o.mask.cu_seqlens_k.extents[0] = 0;
        }}});
  const auto documents = [](const auto& queries, const auto& keys) {
    return [&](AttentionInput&, AttentionOptions& o) {
      o.mask.cu_seqlens_q = list_of(queries);
      o.mask.cu_seqlens_k = list_of(keys);
    };
  };
  expect_refusals(
      kCall,
      {{"cu_seqlens_k must have as many documents as cu_seqlens_q; got [2] for [3]",
        documents(kShort, kKeys)},
       {"cu_seqlens_q must begin with 0 and end with 3; got 0 ... 2", documents(kShort, kShort)},
       {"cu_seqlens_q must begin with 0 and end with 3; got 1 ... 3", documents(kLate, kLate)},
       {"cu_seqlens_q must never decrease; got 4 before 3", documents(kBack, kDocuments)}});
  for (const auto& [name, part, number] : {std::tuple{"dilation", &Mask::dilation, 2},
                                           {"window_left", &Mask::window_left, 0},
                                           {"chunk_size", &Mask::chunk_size, 8}}) {
    const auto change = [&](AttentionInput&, AttentionOptions& o) {
      o.mask.prefix_keys = list_of(kTwo);
      o.mask.*part = number;
    };
    expect_refusals(kCall, {{"prefix_keys must be absent with " + std::string(name) +
                                 ", which would leave a gap in a row's keys; got " + name + " = " +
                                 std::to_string(number),
                             change}});
  }
}

TEST(Refusals, OfPages) {
  const std::string line = "shape=1x1x1x9x8 pages=4";
  const Data data(parse_problem(line));
  const std::string pages = std::to_string(data.input().k.extents[0]);
  const std::string table =
      "block_table must have a row for each batch and a column for each page of keys; got ";
  expect_refusals(line, {{"k must have pages of at least one key; got [" + pages + ", 1, 0, 8]",
                          [](auto& in, auto&) { in.k.extents[2] = in.v.extents[2] = 0; }},
                         {table + "[2, 3] for 9 keys",
                          [](auto& in, auto&) { in.pages.block_table.extents[0] = 2; }}});
  for (const std::int64_t keys : {std::int64_t{-1}, std::int64_t{13}, kFar}) {
    expect_refusals(line, {{table + "[1, 3] for " + std::to_string(keys) + " keys",
                            [=](auto& in, auto&) { in.pages.keys = keys; }}});
  }
  for (const std::int32_t page : {-1, 1 << 20}) {
    const std::array<std::int32_t, 3> numbers = {0, page, 0};
    expect_refusals(line, {{"block_table must hold page numbers below " + pages + "; got " +
                                std::to_string(page),
                            [&](auto& in, auto&) { in.pages.block_table.data = numbers.data(); }}});
  }
  EXPECT_EQ(
      message_of([&] { attention_backward(data.input(), data.options(), {}, {}); }),
      "[attention_backward] block_table must be absent: paged keys have no backward pass; got "
      "one");
}

TEST(Refusals, OfProblemsSayWhatAFieldTakes) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"mask=none", "a problem must be given a shape="},
      {"shape=1x2x3x4", "shape must be BATCHxHEADS"},
      {"shape=1x2:1:1x3x4x8", "shape must be N or N:M; got \"2:1:1\""},
      {"shape=-1x2x3x4x8", "shape must be a number of at least 0; got \"-1\""},
      {"shape=1x2x3x4x8 bias", "a field must be NAME=VALUE; got \"bias\""},
      {"shape=1x2x3x4x8 bias=2", "bias must be 0 or 1; got \"2\""},
      {"shape=1x2x3x4x8 stats=hats", "stats must be one of lse, entropy, "},
      {"shape=1x2x3x4x8 stats=", "stats must be one of "},
      {"shape=1x2x3x4x8 hats=1", "a field must be one of "},
      {"shape=1x2x3x4x8 dt=f64", "dt must be "},
      {"shape=1x2x3x4x8 mask=window=3", "window must be two numbers N:M; got \"3\""},
      {"shape=1x2x3x4x8 mask=hats", "mask must be none, causal:top_left"},
      {"shape=1x2x3x4x8:12 cache=8", "cache must be a divisor of both dimensions; got \"8\""},
      {"shape=1x2x3x4x12:8 cache=8", "cache must be a divisor of both dimensions; got \"8\""},
      {"shape=1x2x3x4x8 cache=8 special=1", "special must be 0 with cache; got \"1\""},
      {"shape=1x2x3x4x8 slopes=1", "bias must be 1 with bias_dt, additive_mask, slopes and"},
      {"dt=f16 kv=bf16 shape=1x2x3x4x8", "kv must be bf16 or f16, with dt=f32; got \"bf16\""},
      {"kv=f32 shape=1x2x3x4x8", "kv must be bf16 or f16, with dt=f32; got \"f32\""},
      {"shape=1x2x3x4x8 sequences=2", "pages must be given with sequences; got \"0\""},
      {"shape=2x2x3x4x8 pages=4 sequences=2", "shape must be of a batch of 1 with sequences"},
  };
  for (const auto& [line, message] : lines)
    expect_words(message_of([&] { (void)parse_problem(line); }), {message});
  for (const std::string got : {"big", "", "3x", "-1", "nan", "1e999", "1,5"}) {
    EXPECT_EQ(message_of([&] { (void)parse_problem("shape=1x1x2x2x8 cap=" + got); }),
              "[problem] cap must be a number of at least 0.000000; got \"" + got + "\"");
  }
  const Problem all = parse_problem(
      "  shape=1x2x3x4x8  mask=none,documents=2 cache=4 admitted=1 seed=9 dropout_seed=3\tscale=2 "
      "stats=distance");
  EXPECT_EQ(parse_problem(text_of(all)), all);
}

// bench times the call that the problem describes, and counts its work from the mask.
TEST(PreparedCalls, ComputeTheProblemAndCountItsPairs) {
  for (const char* line : {"shape=1x2x5x7x8 mask=causal:bottom_right bwd=1",
                           "dt=bf16 shape=2x2x5x7x8:4 mask=causal:bottom_right bwd=1",
                           "dt=f16 shape=1x2x5x7x8 mask=causal:bottom_right"}) {
    const Problem problem = parse_problem(line);
    PreparedCall call(problem, run_serially);
    EXPECT_GE(call.run(), 0);
    const Work work = work_of(call.data());
    const double pairs = static_cast<double>(problem.batch * problem.heads) * (3 + 4 + 5 + 6 + 7);
    const double dim = static_cast<double>(problem.dim),
                 value = static_cast<double>(problem.value_dim);
    EXPECT_EQ(work.scores, problem.backward ? 2 * pairs : pairs) << line;
    const double forward = 2 * (dim + value), backward = problem.backward ? 6 * dim + 4 * value : 0;
    EXPECT_EQ(work.flops, pairs * (forward + backward)) << line;
  }
  EXPECT_EQ(median_of({3, 1, 2}), 2);
}

}  // namespace
}  // namespace isentrope::check
