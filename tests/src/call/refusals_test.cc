// Invalid arguments of calls, problem lines, rules and configs are refused by name, before writing.

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/config/scale_rule_json.h"
#include "isentrope/error.h"
#include "isentrope/quantize.h"
#include "tests/support/message_of.h"
#include "tools/check/measure.h"
#include "tools/check/run.h"

namespace isentrope {
namespace {

using check::Data;
using check::parse_problem;

template <std::size_t Count>
View<const std::int64_t, 1> list(const std::array<std::int64_t, Count>& numbers) {
  return contiguous_view<const std::int64_t, 1>(numbers.data(), {static_cast<std::int64_t>(Count)});
}

struct Call {
  AttentionInput input;
  AttentionOptions options;
};

struct Refusal {
  const char* message;
  std::function<void(Call&)> change;
};

constexpr std::array<std::int64_t, 1> kTwo = {2};
constexpr std::array<std::int64_t, 3> kShort = {0, 1, 2}, kBack = {0, 4, 3}, kLate = {1, 2, 3},
                                      kDocuments = {0, 2, 4};
constexpr std::array<std::int64_t, 2> kWhole = {0, 3}, kKeys = {0, 4};
constexpr std::int64_t kFar = (std::int64_t{1} << 60) + 1;

// For a call of shape=1x2x3x4x8.
const std::vector<Refusal>& refusals_of_calls() {
  static const std::vector<Refusal> kRefusals = {
      {"[attention] q must have no negative extent; got [1, 2, -3, 8]",
       [](Call& call) { call.input.q.extents[2] = -3; }},
      {"[attention] k must have at most 2^56 elements; got [1, 2, 18014398509481984, 8]",
       [](Call& call) { call.input.k.extents[2] = std::int64_t{1} << 54; }},
      {"[attention] v must have shape [1, 1, 4, 8]; got [1, 2, 4, 8]",
       [](Call& call) { call.input.k.extents[1] = 1; }},
      {"[attention] q must have data; got a null pointer",
       [](Call& call) { call.input.q.data = nullptr; }},
      {"[attention] q must have a head dimension of at least 1; got [1, 2, 3, 0]",
       [](Call& call) { call.input.q.extents[3] = 0; }},
      {"[attention] v must have a value dimension of at least 1; got [1, 2, 4, 0]",
       [](Call& call) { call.input.v.extents[3] = 0; }},
      {"[attention] pages.keys must be 0 without block_table; got 4",
       [](Call& call) { call.input.pages.keys = 4; }},
      {"[attention] dropout_p must be at least 0 and below 1; got 1.000000",
       [](Call& call) { call.options.dropout_p = 1; }},
      {"[attention] dropout_p must be at least 0 and below 1; got -0.500000",
       [](Call& call) { call.options.dropout_p = -0.5f; }},
      {"[attention] soft_cap must be finite and not negative; got -1.000000",
       [](Call& call) { call.options.soft_cap = -1; }},
      {"[attention] soft_cap must be finite and not negative; got inf",
       [](Call& call) { call.options.soft_cap = std::numeric_limits<float>::infinity(); }},
      {"[attention] rule must have a number for each of the 2 heads, or one for all; got 3",
       [](Call& call) { call.options.rule = ScaleRule::parse("ssmax(s=[1,2,3])"); }},
      {"[attention] chunk_size must not be negative; got -1",
       [](Call& call) { call.options.mask.chunk_size = -1; }},
      {"[attention] key_offset must be at most 2^60; got 1152921504606846977",
       [](Call& call) { call.options.mask.key_offset = kFar; }},
  };
  return kRefusals;
}

// For the same call: masks that contradict themselves or the call.
const std::vector<Refusal>& refusals_of_masks() {
  static const std::vector<Refusal> kRefusals = {
      {"[attention] sequence_keys must be at least 6, the number of keys up to the end of this "
       "call; got 5",
       [](Call& call) {
         call.options.mask.key_offset = 2;
         call.options.mask.sequence_keys = 5;
       }},
      {"[attention] query_offset must leave the 3 queries within the 10 keys of the sequence under "
       "bottom_right; got 8",
       [](Call& call) {
         call.options.mask.causal = Causal::bottom_right;
         call.options.mask.sequence_keys = 10;
         call.options.mask.query_offset = 8;
       }},
      {"[attention] prefix_keys must be absent with dilation, which would leave a gap in a row's "
       "keys; got dilation = 2",
       [](Call& call) {
         call.options.mask.prefix_keys = list(kTwo);
         call.options.mask.dilation = 2;
       }},
      {"[attention] prefix_keys must be absent with window_left, which would leave a gap in a "
       "row's keys; got window_left = 0",
       [](Call& call) {
         call.options.mask.prefix_keys = list(kTwo);
         call.options.mask.window_left = 0;
       }},
      {"[attention] prefix_keys must be absent with chunk_size, which would leave a gap in a row's "
       "keys; got chunk_size = 8",
       [](Call& call) {
         call.options.mask.prefix_keys = list(kTwo);
         call.options.mask.chunk_size = 8;
       }},
      {"[attention] cu_seqlens_k must be given with cu_seqlens_q; got none",
       [](Call& call) { call.options.mask.cu_seqlens_q = list(kWhole); }},
      {"[attention] cu_seqlens_q must be given with cu_seqlens_k; got none",
       [](Call& call) { call.options.mask.cu_seqlens_k = list(kKeys); }},
      {"[attention] cu_seqlens_k must have as many documents as cu_seqlens_q; got [2] for [3]",
       [](Call& call) {
         call.options.mask.cu_seqlens_q = list(kShort);
         call.options.mask.cu_seqlens_k = list(kKeys);
       }},
      {"[attention] cu_seqlens_q must begin with 0 and end with 3; got 0 ... 2",
       [](Call& call) {
         call.options.mask.cu_seqlens_q = list(kShort);
         call.options.mask.cu_seqlens_k = list(kShort);
       }},
      {"[attention] cu_seqlens_q must begin with 0 and end with 3; got 1 ... 3",
       [](Call& call) {
         call.options.mask.cu_seqlens_q = list(kLate);
         call.options.mask.cu_seqlens_k = list(kLate);
       }},
      {"[attention] cu_seqlens_q must begin with 0 and end with 3; got no elements",
       [](Call& call) {
         call.options.mask.cu_seqlens_q = call.options.mask.cu_seqlens_k = list(kWhole);
         call.options.mask.cu_seqlens_q.extents[0] = call.options.mask.cu_seqlens_k.extents[0] = 0;
       }},
      {"[attention] cu_seqlens_q must never decrease; got 4 before 3",
       [](Call& call) {
         call.options.mask.cu_seqlens_q = list(kBack);
         call.options.mask.cu_seqlens_k = list(kDocuments);
       }},
  };
  return kRefusals;
}

TEST(Refusals, OfCallsNameTheArgumentAndLeaveTheOutput) {
  const Data data(parse_problem("shape=1x2x3x4x8"));
  std::vector<float> output(2 * 3 * 8, 7.0f);
  const AttentionOutput out{contiguous_view<float, 4>(output.data(), {1, 2, 3, 8}), {}};
  for (const auto* refusals : {&refusals_of_calls(), &refusals_of_masks()}) {
    for (const auto& [message, change] : *refusals) {
      Call call{data.input(), data.options()};
      change(call);
      EXPECT_EQ(message_of([&] { attention_forward(call.input, call.options, out); }), message);
    }
  }
  EXPECT_EQ(output, std::vector<float>(2 * 3 * 8, 7.0f));
}

TEST(Refusals, OfProblemsSayWhatTheFieldTakes) {
  for (const char* got : {"big", "", "3x", "-1", "nan", "1e999"}) {
    EXPECT_EQ(
        message_of([&] { (void)parse_problem("shape=1x1x2x2x8 cap=" + std::string(got)); }),
        "[problem] cap must be a number of at least 0.000000; got \"" + std::string(got) + "\"");
  }
}

TEST(Refusals, OfPages) {
  const Data data(parse_problem("shape=1x1x1x9x8 pages=4"));
  std::vector<float> output(8);
  const AttentionOutput out{contiguous_view<float, 4>(output.data(), {1, 1, 1, 8}), {}};
  const auto message = [&](const std::function<void(AttentionInput&)>& change) {
    AttentionInput input = data.input();
    change(input);
    return message_of([&] { attention_forward(input, data.options(), out); });
  };
  EXPECT_EQ(message([](AttentionInput& in) { in.k.extents[2] = in.v.extents[2] = 0; }),
            "[attention] k must have pages of at least one key; got [" +
                std::to_string(data.input().k.extents[0]) + ", 1, 0, 8]");
  constexpr const char* kTable =
      "[attention] block_table must have a row for each batch and a column for each page of keys; "
      "got ";
  for (const std::int64_t keys : {std::int64_t{-1}, std::int64_t{13}, kFar}) {
    EXPECT_EQ(message([&](AttentionInput& in) { in.pages.keys = keys; }),
              kTable + ("[1, 3] for " + std::to_string(keys) + " keys"));
  }
  EXPECT_EQ(message([](AttentionInput& in) { in.pages.block_table.extents[0] = 2; }),
            std::string(kTable) + "[2, 3] for 9 keys");
  const std::string pages = std::to_string(data.input().k.extents[0]);
  for (const std::int32_t page : {-1, 1 << 20}) {
    const std::array<std::int32_t, 3> numbers = {0, page, 0};
    EXPECT_EQ(message([&](AttentionInput& in) {
                in.pages.block_table =
                    contiguous_view<const std::int32_t, 2>(numbers.data(), {1, 3});
              }),
              "[attention] block_table must hold page numbers below " + pages + "; got " +
                  std::to_string(page));
  }
  EXPECT_EQ(
      message_of([&] { attention_backward(data.input(), data.options(), {}, {}); }),
      "[attention_backward] block_table must be absent: paged keys have no backward pass; got "
      "one");
}

TEST(Refusals, OfProblemsSayWhatAFieldTakes) {
  const std::vector<std::pair<const char*, const char*>> kLines = {
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
      {"shape=1x2x3x4x8 cap=1,5", "cap must be a number of at least 0.000000; got \"1,5\""},
      {"shape=1x2x3x4x8 cap=much", "cap must be a number of at least 0.000000; got \"much\""},
      {"shape=1x2x3x4x8 mask=window=3", "window must be two numbers N:M; got \"3\""},
      {"shape=1x2x3x4x8 mask=hats", "mask must be none, causal:top_left"},
      {"shape=1x2x3x4x8:12 cache=8", "cache must be a divisor of both dimensions; got \"8\""},
      {"shape=1x2x3x4x12:8 cache=8", "cache must be a divisor of both dimensions; got \"8\""},
      {"shape=1x2x3x4x8 cache=8 special=1", "special must be 0 with cache; got \"1\""},
  };
  for (const auto& [line, message] : kLines) {
    EXPECT_NE(message_of([&] { (void)parse_problem(line); }).find(message), std::string::npos)
        << line << ": " << message_of([&] { (void)parse_problem(line); });
  }
  const check::Problem all = parse_problem(
      "  shape=1x2x3x4x8  mask=none,documents=2 cache=4 admitted=1 seed=9 dropout_seed=3\tscale=2 "
      "stats=distance");
  EXPECT_EQ(parse_problem(text_of(all)), all);
}

TEST(Refusals, OfRules) {
  const auto message = [](const char* text) {
    return message_of([&] { (void)ScaleRule::parse(text); });
  };
  EXPECT_NE(message("logn*logn*logn*logn*logn").find("at most 4 rules"), std::string::npos);
  EXPECT_NE(message("ssmax(s=[1,2])*scaled([1,2,3])").find("agree on the number of heads"),
            std::string::npos);
  EXPECT_NE(message_of([] { (void)ScaleRule::make("logn", {}); }).find("as many arguments"),
            std::string::npos);
  EXPECT_NE(message_of([] { (void)ScaleRule::make("hats", {}); }).find("as many arguments"),
            std::string::npos);
  for (const char* text : {"closed_form(growth=hats)", "closed_form(growth=power,unit=9)",
                           "closed_form(growth=0.5)", "logn(64,where=hats)", "logn(64,length=-1)",
                           "logn(64,length=hats)", "logn(6 4)", "logn(64"}) {
    EXPECT_NE(message(text), "") << text;
  }
  for (const char* text : {"logn(64,where=pre_cap)", "logn(64,where=post_cap)",
                           "logn(64,length=total)", "closed_form(growth=log,unit=64)"}) {
    const ScaleRule rule = ScaleRule::parse(text);
    EXPECT_EQ(ScaleRule::parse(rule.text()), rule) << text;
  }
  const std::string longest = message(std::string(std::size_t{1} << 21, 'x').c_str());
  EXPECT_NE(longest, "");
  EXPECT_LT(longest.size(), 1000u);
  const ScaleRule two = ScaleRule::parse("ssmax(s=[1,2])");
  for (const std::int64_t head : {-1, 2}) {
    EXPECT_NE(message_of([&] { (void)two.lambda({.visible = 4}, 8, head); }), "");
  }
  EXPECT_NE(message_of([&] { (void)two.of_heads(1, 2); }), "");
}

TEST(Refusals, OfCaches) {
  Tensor rows;
  rows.extents = {1, 1, -1, 8};
  EXPECT_NE(message_of([&] { quantize(rows, {}, {}); }).find("negative"), std::string::npos);
}

// Numbers of configs that have no effect or contradict each other.
TEST(ConfigNumbers, DecideOnlyWhereTheyMeanSomething) {
  const std::vector<std::pair<const char*, const char*>> kConfigs = {
      {R"({"use_logn_attn": 1, "seq_length": 64})", "logn(64)"},
      {R"({"use_logn_attn": "yes", "seq_length": 64})", "standard"},
      {R"({"use_logn_attn": 0, "rope_scaling": 3})", "standard"},
      {R"({"text_config": 1, "model_type": ["swinv2"]})", "standard"},
      {R"({"xai_temperature_len": 0})", "standard"},
      {R"({"rope_scaling": {"type": "linear", "factor": 2}})", "standard"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 0.5}})", "yarn_mscale(factor=0.5)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 0, "mscale_all_dim": 1}})",
       "yarn_mscale(factor=4)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 0}})",
       "yarn_mscale(factor=4,mscale=2)"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 2}})",
       "standard"},
      {R"({"kv_lora_rank": 8,
           "rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 1}})",
       "yarn_mscale(factor=4,mscale=1)"},
  };
  for (const auto& [config, rule] : kConfigs)
    EXPECT_EQ(scale_of_config(config).rule, ScaleRule::parse(rule))
        << config << ": " << scale_of_config(config).rule.text();
  const ModelScale ratio = scale_of_config(
      R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 1}})");
  EXPECT_NE(ratio.rule, ScaleRule::standard());
  EXPECT_EQ(scale_of_config(R"({"head_dim": 0.5, "num_attention_heads": 1e9})").dim, 0);
}

// bench times the call that the problem describes, and counts its work from the mask.
TEST(PreparedCalls, ComputeTheProblemAndCountItsPairs) {
  for (const char* line : {"shape=1x2x5x7x8 mask=causal:bottom_right bwd=1",
                           "dt=bf16 shape=2x2x5x7x8:4 mask=causal:bottom_right bwd=1",
                           "dt=f16 shape=1x2x5x7x8 mask=causal:bottom_right"}) {
    const check::Problem problem = parse_problem(line);
    check::PreparedCall call(problem, run_serially);
    EXPECT_GE(call.run(), 0);
    const check::Work work = check::work_of(call.data());
    const double pairs = static_cast<double>(problem.batch * problem.heads) * (3 + 4 + 5 + 6 + 7);
    const double dim = static_cast<double>(problem.dim),
                 value = static_cast<double>(problem.value_dim);
    EXPECT_EQ(work.scores, problem.backward ? 2 * pairs : pairs) << line;
    const double forward = 2 * (dim + value), backward = problem.backward ? 6 * dim + 4 * value : 0;
    EXPECT_EQ(work.flops, pairs * (forward + backward)) << line;
  }
  EXPECT_EQ(check::median_of({3, 1, 2}), 2);
}

}  // namespace
}  // namespace isentrope
