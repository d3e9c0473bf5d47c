// Values of each rule: the published numbers, and differences between implementations of one rule.
#include "isentrope/scale_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "isentrope/rule_catalogue.h"
#include "tests/support/message_of.h"
#include "tests/support/words.h"

namespace isentrope {
namespace {

// Returns the length of the last row of a causal call over n keys.
RowLength last_row(std::int64_t n) { return {n, n - 1, n}; }

// Returns lambda sqrt(d), the factor on 1 / sqrt(d).
double factor(const ScaleRule& rule, std::int64_t n, std::int64_t dim = 64) {
  return rule.lambda(last_row(n), dim) * std::sqrt(static_cast<double>(dim));
}

constexpr std::array<std::int64_t, 7> kLengths = {16, 64, 512, 4096, 16384, 131072, 1048576};

struct Fingerprint {
  const char* rule;
  std::int64_t dim;
  std::array<double, 7> factor;  // at kLengths, to the three decimals of their source
};

class Fingerprints : public testing::TestWithParam<Fingerprint> {};

TEST_P(Fingerprints, MatchTheSurvey) {
  const auto& [text, dim, want] = GetParam();
  const ScaleRule rule = ScaleRule::parse(text);
  for (std::size_t i = 0; i < kLengths.size(); ++i) {
    EXPECT_NEAR(factor(rule, kLengths[i], dim), want[i], 0.0005001)
        << text << " at " << kLengths[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    ScaleRule, Fingerprints,
    testing::Values(
        Fingerprint{
            "entropy_invariant(base=512)", 64, {0.444, 0.667, 1, 1.333, 1.556, 1.889, 2.222}},
        Fingerprint{"logn(train_len=8192)", 64, {1, 1, 1, 1, 1.077, 1.308, 1.538}},
        Fingerprint{"logn(train_len=4096)", 64, {1, 1, 1, 1, 1.167, 1.417, 1.667}},
        Fingerprint{"xai_temperature(len=1024)", 64, {1, 1, 1, 1.200, 1.400, 1.700, 2.000}},
        Fingerprint{"log_length", 64, {2.773, 4.159, 6.238, 8.318, 9.704, 11.784, 13.863}},
        Fingerprint{"grad_max_normal", 64, {1.399, 1.713, 2.098, 2.423, 2.617, 2.883, 3.128}},
        Fingerprint{"attn_temperature_tuning", 64, {1, 1, 1, 1, 1.110, 1.283, 1.486}},
        Fingerprint{"dual_chunk(train_len=128000)", 64, {1, 1, 1, 1, 1, 1.002, 1.210}},
        Fingerprint{"dynamic_yarn(train_len=4096)", 64, {1, 1, 1, 1, 1.296, 1.813, 2.417}},
        Fingerprint{
            "proportional(base_len=4096)", 64, {0.577, 0.707, 0.866, 1, 1.080, 1.190, 1.291}},
        Fingerprint{
            "infoscale(train_len=512)", 128, {0.676, 0.823, 1, 1.146, 1.231, 1.346, 1.448}}),
    [](const auto& test) {
      const std::string text = test.param.rule;
      return text.substr(0, text.find('(')) + "_" + std::to_string(test.index);
    });

// Inkling's factor multiplies 1 / d and the position bias.
TEST(ScaleRule, LogScalingStandsOnInverseDim) {
  const ScaleRule rule = ScaleRule::log_scaling();
  EXPECT_NEAR(rule.lambda(last_row(131072), 64) * 64, 1.002, 0.0005);
  EXPECT_NEAR(rule.lambda(last_row(1048576), 64) * 64, 1.210, 0.0005);
  EXPECT_NEAR(rule.on_bias(last_row(1048576), 64), 1.210, 0.0005);
  EXPECT_EQ(ScaleRule::logn().on_bias(last_row(1048576), 64), 1);
}

// LongRoPE multiplies q and k by sqrt(1 + ln s / ln L), whose square is log_L of the target length.
// So the rule for one target equals ReRoPE's logn at that length.
TEST(ScaleRule, LongropeSquaredIsLogn) {
  for (const std::int64_t n : kLengths) {
    const double s = static_cast<double>(n) / 4096;
    const double mscale = s <= 1 ? 1 : std::sqrt(1 + std::log(s) / std::log(4096));
    const double longrope = factor(ScaleRule::longrope(4096, static_cast<double>(n)), 7);
    EXPECT_NEAR(longrope, mscale * mscale, 1e-14);
    EXPECT_EQ(longrope, factor(ScaleRule::logn(4096), n));
  }
}

// YaRN's factor enters q and k; the logit gets its square.
TEST(ScaleRule, YarnIsSquaredOnTheLogit) {
  const double attention_factor = 1 + 0.1 * std::log(40);
  EXPECT_NEAR(factor(ScaleRule::yarn_mscale(40), 1000), attention_factor * attention_factor, 1e-14);
  EXPECT_NEAR(factor(ScaleRule::dynamic_yarn(4096), 40 * 4096), attention_factor * attention_factor,
              1e-14);
  EXPECT_EQ(factor(ScaleRule::yarn_mscale(0.5), 1000), 1);       // not stretched
  const double mscale_all_dim = 1 + 0.1 * 0.707 * std::log(40);  // DeepSeek-V2-Lite
  EXPECT_NEAR(factor(ScaleRule::yarn_mscale(40, 0.707), 1), mscale_all_dim * mscale_all_dim, 1e-14);
}

// Qwen takes position + 1, lmdeploy's TurboMind the position itself: they differ at every length.
TEST(ScaleRule, LognOfPositionLagsByOneKey) {
  const ScaleRule qwen = ScaleRule::logn(8192);
  const ScaleRule turbomind = qwen.with_length({.source = LengthSource::position});
  EXPECT_EQ(turbomind.text(), "logn(train_len=8192,length=position)");
  EXPECT_EQ(factor(turbomind, 10001), factor(qwen, 10000));
  EXPECT_LT(factor(turbomind, 10000), factor(qwen, 10000));
  EXPECT_EQ(factor(turbomind, 1), 1);  // never takes ln 0
}

// The catalogue's text about the length agrees with its form.
TEST(ScaleRule, CountsWhatTheCatalogueSays) {
  for (const ScaleRule& rule : ScaleRule::all()) {
    const ScaleRule::Term& term = rule.terms().front();
    const RuleInfo& info = *find_rule(term.name);
    EXPECT_EQ(counted(info, term.form), info.counts) << info.name;
    const bool counts =
        term.form.growth != Growth::one && term.form.length.source != LengthSource::fixed;
    EXPECT_EQ(counts, !info.counts.empty()) << info.name;
  }
  const ScaleRule given = ScaleRule::logn().with_length({.source = LengthSource::total});
  EXPECT_EQ(counted(*find_rule("logn"), given.terms().front().form), "total: as given");
  EXPECT_EQ(counted(*find_rule("logn"), ScaleRule::parse("logn(length=300)").terms().front().form),
            "300: as given");
}

// Appending tokens does not change earlier rows.
TEST(ScaleRule, CountsWhatTheRowSeesUnlessItsSourceDoesNot) {
  for (const ScaleRule& rule : ScaleRule::all()) {
    const std::string_view name = rule.terms().front().name;
    const bool by_call = name == "dual_chunk" || name == "dynamic_yarn" || name == "proportional";
    EXPECT_EQ(rule.reads(LengthSource::total), by_call) << name;
  }
}

// CLEX: the keys of the call for every row, without a lower clamp.
TEST(ScaleRule, ClexIsEntropyInvariantOverTheCall) {
  const ScaleRule clex = ScaleRule::parse("entropy_invariant(base=4096, length=total)");
  EXPECT_NEAR(clex.lambda({1, 0, 1024}, 64) * 8, std::log(1024) / std::log(4096), 1e-15);
  EXPECT_EQ(clex.lambda({1, 0, 1024}, 64), clex.lambda({1024, 1023, 1024}, 64));
}

// Llama 4 steps at position + 1 = 8192, Ministral 3 one row later.
TEST(ScaleRule, TemperatureTuningCountsFromOneAndMinistralFromZero) {
  const ScaleRule llama = ScaleRule::attn_temperature_tuning(),
                  ministral = ScaleRule::llama_4_scaling();
  const double step = 1 + 0.1 * std::log(2);
  EXPECT_EQ(factor(llama, 8191), 1);
  EXPECT_NEAR(factor(llama, 8192), step, 1e-15);
  EXPECT_EQ(factor(ministral, 8192), 1);
  EXPECT_NEAR(factor(ministral, 8193), step, 1e-15);
  EXPECT_EQ(ScaleRule::attn_temperature_tuning(8192, 0.1, 0).lambda(last_row(8192), 64),
            ministral.lambda(last_row(8192), 64));
}

// Grok-2: the temperature multiplies the logit after the soft-cap, 1/sqrt(d) before it.
TEST(ScaleRule, XaiTemperatureFollowsTheSoftCap) {
  const ScaleRule rule = ScaleRule::xai_temperature(1024);
  const RowLength row = last_row(1048577);
  EXPECT_EQ(rule.pre_cap(row, 64), 0.125);
  EXPECT_EQ(rule.post_cap(row, 64), 2);
  EXPECT_EQ(rule.lambda(row, 64), 0.25);
  EXPECT_EQ(factor(rule, 1025), 1);  // exactly 1 at the threshold
  EXPECT_EQ(ScaleRule::logn().post_cap(row, 64), 1);
}

// bert4keras counts very short rows as 16 keys, bert4torch's descendants do not.
TEST(ScaleRule, EntropyInvariantWithAndWithoutLeastLength) {
  EXPECT_EQ(factor(ScaleRule::entropy_invariant(512, 16), 2),
            factor(ScaleRule::entropy_invariant(512), 16));
  EXPECT_EQ(factor(ScaleRule::entropy_invariant(512), 1), 0);
}

// SSMax: ln n, ln(min(n, W)) on windowed layers, and one kernel's ln(e + n), n without the own key.
TEST(ScaleRule, SsmaxLengths) {
  EXPECT_NEAR(factor(ScaleRule::parse("ssmax(s=1, n_max=256)"), 4096), std::log(256), 1e-14);
  const auto offset = std::numbers::e - 1;
  const ScaleRule kernel = ScaleRule::ssmax({1}).with_length({.offset = offset});
  EXPECT_NEAR(factor(kernel, 1), 1, 1e-15);
  EXPECT_NEAR(factor(kernel, 100), std::log(99 + std::numbers::e), 1e-14);
}

TEST(ScaleRule, AsentmaxCountsPositionPlusTwo) {
  const ScaleRule rule = ScaleRule::asentmax({0.5}, {0.3, 0.6}, {2});
  EXPECT_NEAR(rule.lambda(last_row(99), 64, 1) * 8, 0.5 + 0.6 * std::pow(std::log(100), 2), 1e-13);
}

TEST(ScaleRule, ConstantsOfShippedModels) {
  EXPECT_EQ(ScaleRule::query_pre_attn_scalar(256).lambda(last_row(9), 128), 0.0625);
  EXPECT_EQ(ScaleRule::inverse_dim().lambda(last_row(9), 128), 1.0 / 128);
  EXPECT_EQ(ScaleRule::grad_max_constant().lambda(last_row(9), 64), 2.5 / 8);
  EXPECT_EQ(ScaleRule::cosine({10, 200}).lambda(last_row(9), 64, 1), 100);
  // nGPT: sqrt(d) for unit vectors.
  EXPECT_NEAR(ScaleRule::parse("closed_form(p=0.5,a=1,b=0)").lambda(last_row(9), 64), 8, 1e-14);
}

TEST(ScaleRule, ClosedFormsGrowAsTheirFormulasSay) {
  const auto value = [](const char* text) {
    return ScaleRule::parse(text).lambda(last_row(9), 64);
  };
  EXPECT_NEAR(value("closed_form(p=0,a=1,b=2,rho=2)"), 9, 1e-14);
  EXPECT_NEAR(value("closed_form(p=0,growth=log,unit=3,gamma=2,rho=-1)"), 0.25, 1e-14);
  EXPECT_NEAR(value("closed_form(p=0,growth=log_floor,unit=4)"), std::log(3), 1e-14);
  EXPECT_NEAR(value("closed_form(p=0,growth=log_ratio,unit=3)"), std::log(3), 1e-14);
  EXPECT_NEAR(value("closed_form(p=0,growth=power,unit=0.5)"), 3, 1e-14);
  EXPECT_NEAR(value("closed_form(p=0,growth=power,unit=0)"), std::pow(9, 2.0 / 63), 1e-14);
}

// Su 2023: a decoder may take n = L_max / 2 for every row.
TEST(ScaleRule, FixedLengthServesADecoder) {
  const ScaleRule rule = ScaleRule::parse("grad_max_normal(length=1024)");
  EXPECT_EQ(factor(rule, 1), factor(ScaleRule::grad_max_normal(), 1024));
}

TEST(ScaleRule, PerHeadNumbers) {
  const ScaleRule rule = ScaleRule::ssmax({0.2, 0.4, 0.6}, {0.1});
  EXPECT_EQ(rule.heads(), 3);
  EXPECT_NEAR(rule.lambda(last_row(100), 64, 2) * 8, 0.1 + 0.6 * std::log(100), 1e-14);
  for (const std::int64_t head : {-1, 3})
    EXPECT_THROW((void)rule.lambda(last_row(100), 64, head), Error);
  EXPECT_THROW((void)ScaleRule::ssmax({1, 2}, {1, 2, 3}), Error);
}

TEST(ScaleRule, APartOfTheHeadsHasTheirNumbers) {
  for (const char* text :
       {"ssmax(s=[0.2, 0.4, 0.6, 0.8], b=0.1)",
        "asentmax(delta=[1, 2, 3, 4], gamma=[1, 2, 1, 2], length=total)",
        "table(n=[1, 8, 64, 512], factor=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])",
        "per_row(lambda=[1, 2, 3, 4, 5, 6, 7, 8], heads=4)",
        "cosine(tau=[5, 6, 7, 8], where=post_cap)",
        "scaled(gain=[1, 2, 3, 4]) * logn(train_len=8) * ssmax(s=[1, 2, 1, 2])"}) {
    const ScaleRule rule = ScaleRule::parse(text);
    ASSERT_EQ(rule.heads(), 4) << text;
    const ScaleRule part = rule.of_heads(1, 2);
    EXPECT_EQ(part.heads(), 2) << text;
    EXPECT_EQ(ScaleRule::parse(part.text()), part);
    for (const std::int64_t n : {1, 5, 100}) {
      for (const std::int64_t head : {0, 1}) {
        const RowLength length = last_row(n);
        EXPECT_EQ(part.pre_cap(length, 64, head), rule.pre_cap(length, 64, 1 + head)) << text;
        EXPECT_EQ(part.post_cap(length, 64, head), rule.post_cap(length, 64, 1 + head)) << text;
      }
    }
    EXPECT_THROW((void)rule.of_heads(3, 2), Error);
    EXPECT_THROW((void)rule.of_heads(-1, 2), Error);
    EXPECT_THROW((void)rule.of_heads(0, 0), Error);
  }
  for (const char* text :
       {"logn(train_len=8)", "table(n=[1, 8], factor=[1, 2])", "per_row(lambda=[1, 2])"}) {
    EXPECT_EQ(ScaleRule::parse(text).of_heads(5, 2), ScaleRule::parse(text));
  }
}

// Ministral 3 applies both YaRN and its own scaling; the base counts once.
TEST(ScaleRule, ProductsTakeOneBase) {
  const ScaleRule rule = ScaleRule::llama_4_scaling() * ScaleRule::yarn_mscale(16);
  const double yarn = 1 + 0.1 * std::log(16);
  EXPECT_NEAR(factor(rule, 8193), (1 + 0.1 * std::log(2)) * yarn * yarn, 1e-14);
  EXPECT_NEAR((ScaleRule::constant(0.5) * ScaleRule::yarn_mscale(16)).lambda(last_row(8), 64),
              0.5 * yarn * yarn, 1e-14);
  EXPECT_THROW((void)(ScaleRule::yarn_mscale(16) * ScaleRule::constant(0.5)), Error);
  EXPECT_THROW((void)rule.with_length({}), Error);
}

TEST(ScaleRule, AChangeOfTheLengthLeavesTheRestAsItWas) {
  const ScaleRule rule = ScaleRule::attn_temperature_tuning();  // by the position, offset by 1
  const LengthPolicy of_rule = rule.terms()[0].form.length;
  LengthPolicy changed = rule.with_length({.n_min = 4}).terms()[0].form.length;
  EXPECT_EQ(changed.n_min, 4);
  changed.n_min = of_rule.n_min;
  EXPECT_EQ(changed, of_rule);
  EXPECT_EQ(rule.with_length({}), rule);
  const ScaleRule fixed = rule.with_length({.fixed = 1024});
  EXPECT_EQ(fixed.terms()[0].form.length.source, LengthSource::fixed);
  EXPECT_EQ(fixed.with_length({.source = of_rule.source}), rule);
}

TEST(ScaleRule, TablesInterpolateInTheLogarithm) {
  const ScaleRule rule = ScaleRule::table({64, 256, 1024}, {1, 1.5, 3});
  EXPECT_EQ(factor(rule, 2), 1);
  EXPECT_NEAR(factor(rule, 128), 1.25, 1e-14);
  EXPECT_EQ(factor(rule, 256), 1.5);
  EXPECT_EQ(factor(rule, 1 << 20), 3);
  const ScaleRule rows = ScaleRule::per_row({0.1, 0.2, 0.3, 0.4}, 2);
  EXPECT_EQ(rows.lambda({1, 0, 2}, 64, 1), 0.3);
  EXPECT_EQ(rows.lambda({2, 1, 2}, 64, 0), 0.2);
  EXPECT_THROW((void)ScaleRule::table({2, 1}, {1, 1}), Error);
  EXPECT_THROW((void)ScaleRule::table({1, 2}, {1, 1, 1}), Error);
}

TEST(ScaleRule, CosineCoefficientIsSolvedForTheDimension) {
  const auto coefficient = [](std::int64_t dim) {
    return ScaleRule::grad_max_cosine(dim).terms().front().form.b.front();
  };
  EXPECT_NEAR(coefficient(128), 3.4876913654682142, 3e-9);
  EXPECT_LT(coefficient(64), coefficient(128));
  EXPECT_LT(coefficient(128), coefficient(4096));
}

TEST(ScaleRule, EveryRuleIsItsModelAtTheLengthItIsTiedTo) {
  for (const char* text :
       {"entropy_invariant(base=300)", "logn(train_len=300)", "infoscale(train_len=300)",
        "proportional(base_len=300)", "dual_chunk(train_len=300)", "dynamic_yarn(train_len=300)"}) {
    EXPECT_EQ(ScaleRule::parse(text).lambda(last_row(300), 96),
              ScaleRule::standard().lambda(last_row(300), 96))
        << text;
  }
}

TEST(ScaleRule, FiniteAndNonNegativeForEveryLength) {
  for (const ScaleRule& rule : ScaleRule::all()) {
    for (const std::int64_t n :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{1} << 40, std::int64_t{1} << 62}) {
      for (const std::int64_t dim : {2, 64, 65536}) {
        const double lambda = rule.lambda(last_row(n), dim);
        EXPECT_TRUE(std::isfinite(lambda) && lambda >= 0) << rule.text() << " at " << n;
      }
    }
    EXPECT_EQ(rule.lambda({0, 0, 0}, 64), 0) << rule.text();
  }
}

TEST(ScaleRule, RulesForATrainingLengthAreTiedToIt) {
  const auto rules = ScaleRule::all(64);
  EXPECT_EQ(rules.size(), ScaleRule::all().size());
  EXPECT_NE(std::ranges::find(rules, ScaleRule::entropy_invariant(64)), rules.end());
  EXPECT_NE(std::ranges::find(rules, ScaleRule::logn(64)), rules.end());
}

TEST(ScaleRule, OutOfDomainNamesTheArgument) {
  EXPECT_EQ(message_of([] { return ScaleRule::entropy_invariant(1); }),
            "[scale_rule] base must be above 1 and at most 1e+18; got base = 1");
  EXPECT_EQ(message_of([] { return ScaleRule::entropy_invariant(NAN); }),
            "[scale_rule] base must be above 1 and at most 1e+18; got base = nan");
  EXPECT_EQ(message_of([] { return ScaleRule::cosine({-1}); }),
            "[scale_rule] tau must be at least 0 and at most 1e+09; got tau = -1");
  EXPECT_EQ(message_of([] { return ScaleRule::constant(-2e9); }),
            "[scale_rule] scale must be at least -1e+09 and at most 1e+09; got scale = -2e+09");
  expect_words(message_of([] { return ScaleRule::entropy_invariant(512, 0); }), {"n_min"});
  expect_words(message_of([] { return ScaleRule::grad_max_cosine(1); }), {"dim"});
  expect_words(message_of([] { return ScaleRule::standard().lambda({1, 0, 1}, 0); }), {"dim"});
  expect_words(message_of([] { return ScaleRule::parse("logn*logn*logn*logn*logn"); }),
               {"at most 4 rules"});
  expect_words(message_of([] { return ScaleRule::parse("ssmax(s=[1,2])*scaled([1,2,3])"); }),
               {"agree on the number of heads"});
  for (const char* name : {"logn", "hats"})
    expect_words(message_of([&] { return ScaleRule::make(name, {}); }), {"as many arguments"});
}

}  // namespace
}  // namespace isentrope
