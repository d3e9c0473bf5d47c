// Options, progress, result.json and the tables.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "isentrope/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/words.h"
#include "tools/analysis/differences.h"
#include "tools/analysis/records.h"
#include "tools/lab/options.h"
#include "tools/lab/progress.h"
#include "tools/lab/result.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "isentrope-extrapolate");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data()).value();
}

// Returns the record of a model of `rule` at two lengths.
json record(const char* rule, std::uint64_t seed, double accuracy) {
  const auto row = [&](const char* kind, double value) {
    return json{{"kind", kind},
                {"rule", rule},
                {"tokens", {640, 600}},
                {"predictions", {96, 90}},
                {"accuracy", {value, value / 2}},
                {"cross_entropy", {1, 2}},
                {"entropy", {2, 4}},
                {"gradient_mass", {0.1, 0.2}},
                {"distance", {8, 16}},
                {"share_beyond", {0, 30}}};
  };
  return {{"rule", rule},
          {"seed", seed},
          {"parameters", 1000},
          {"loss", {5, accuracy}},
          {"seconds_per_step", 0.1},
          {"evaluation", {{"lengths", {64, 128}}, {"bytes_per_token", 1}}},
          {"rows", {row("trained", accuracy), row("near", accuracy + 1)}}};
}

json result_of(const std::vector<json>& records) {
  return {{"train_length", 64},
          {"lengths", {64, 128}},
          {"protocol", {{"part", "test"}}},
          {"rules", analysis::rules_json(records)},
          {"leads", analysis::leads_json(analysis::exploratory_leads(records))}};
}

std::string shown(const std::function<void(Progress&)>& use, Progress::Style style) {
  const TemporaryFolder folder;
  std::FILE* stream = std::fopen((folder / "shown").c_str(), "w");
  {
    Progress progress(stream, style);
    use(progress);
  }
  std::fclose(stream);
  return read_file(folder / "shown");
}

void three_steps(Progress& progress) {
  progress.expect_steps(6);
  for (int step = 1; step <= 3; ++step) progress.step("standard", step, 3, 2.5, 0.5);
}

TEST(Options, RulesKeepTheirOwnCommas) {
  const auto rules = parse_rules(
      "standard,entropy_invariant(base=64,n_min=2),learned(ssmax(s=1)),ssmax(s=[0.2,0.4],b=0)");
  ASSERT_EQ(rules.size(), 4U);
  EXPECT_EQ(rules[1], ModelRule{ScaleRule::entropy_invariant(64, 2)});
  EXPECT_TRUE(rules[2].learned);
  EXPECT_EQ(rules[2].rule, ScaleRule::ssmax({1}));
  EXPECT_EQ(ModelRule::parse(rules[2].text()), rules[2]);
  EXPECT_EQ(rules[3].rule, ScaleRule::ssmax({0.2, 0.4}));
}

TEST(Options, ModelsAreChosenByName) {
  const ModelConfig plain = parse({}).experiment.model;
  EXPECT_TRUE(plain.embedding_norm);
  const ModelConfig other = parse({"--model", "modern", "--init=pytorch", "--positions",
                                   "rope-partial", "--objective", "causal"})
                                .experiment.model;
  EXPECT_EQ(other.shape, ModelShape::modern);
  EXPECT_EQ(other.init, Init::pytorch);
  EXPECT_EQ(other.positions, Positions::rope_partial);
  EXPECT_EQ(other.objective, Objective::causal);
  EXPECT_FALSE(other.embedding_norm);
}

// The default rules also scale a position bias, if there is one.
TEST(Options, DefaultRulesSuitThePositions) {
  const ExperimentOptions rope = parse({"--train-length", "32"}).experiment;
  EXPECT_EQ(rope.rules, default_rules());
  EXPECT_EQ(rope.rescaled, std::vector{ScaleRule::entropy_invariant(32)});
  const ExperimentOptions t5 = parse({"--positions", "t5"}).experiment;
  EXPECT_EQ(t5.rules[0].rule, ScaleRule::standard());
  EXPECT_EQ(t5.rules[1].rule, ScaleRule::entropy_invariant(512).with_scaled_bias(true));
  EXPECT_EQ(t5.rescaled, std::vector{ScaleRule::entropy_invariant(64).with_scaled_bias(true)});
  EXPECT_TRUE(parse({"--rescaled", "none"}).experiment.rescaled.empty());
  EXPECT_THROW((void)parse({"--rescaled", "learned(ssmax)"}), Error);
}

TEST(Options, RefuseRulesTwiceOrUnknown) {
  EXPECT_THROW((void)parse_rules("standard,standard"), Error);
  EXPECT_THROW((void)parse_rules("entropy_invariant,entropy_invariant(base=512)"), Error);
  EXPECT_THROW((void)parse_rules("standard,"), Error);
  EXPECT_THROW((void)parse_rules(""), Error);
}

TEST(Options, LengthsRiseAndCountOnce) {
  EXPECT_EQ(parse({"--lengths", "128,64,128"}).experiment.lengths,
            (std::vector<std::int64_t>{64, 128}));
}

TEST(Options, WhatIsTypedBesideAPresetChangesIt) {
  const ExperimentOptions options = parse({"--width=96", "--preset", "seed"}).experiment;
  EXPECT_EQ(options.model.width, 96);
  EXPECT_EQ(options.model.layers, 6);
  EXPECT_EQ(parse({"--preset=demo"}).experiment.model.layers, 4);
}

TEST(Options, KnowTheCommandToTypeAgain) {
  EXPECT_EQ(parse({"--rules", "constant(scale=1)", "--resume"}).experiment.command,
            "isentrope extrapolate --rules 'constant(scale=1)'");
}

TEST(Progress, WritesPlainLinesWhereThereIsNoTerminal) {
  EXPECT_EQ(shown(three_steps, Progress::Style::lines),
            "standard: step 1 of 3, loss 2.500, 2.00 steps/s, 0:03 left\n"
            "standard: step 3 of 3, loss 2.500, 2.00 steps/s, 0:02 left\n");
}

TEST(Progress, RewritesOneLineOnATerminal) {
  const std::string text = shown(three_steps, Progress::Style::terminal);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  expect_words(text, {"\r\033[K"});
}

TEST(Progress, CanBeSilent) { EXPECT_EQ(shown(three_steps, Progress::Style::silent), ""); }

TEST(Progress, ClockReadsAsAClock) {
  EXPECT_EQ(clock_text(7.4), "0:07");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3723), "1:02:03");
}

TEST(Result, OneSeedHasNoSpread) {
  const json rules = analysis::rules_json({record("standard", 1, 50)});
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0]["accuracy"]["64"], 50);
  EXPECT_EQ(rules[0]["accuracy"]["128"], 25);
  EXPECT_EQ(rules[0]["entropy"]["128"], 4);
  EXPECT_EQ(rules[0]["loss"], (json{5, 50}));
  EXPECT_FALSE(rules[0].contains("spread"));
  ASSERT_EQ(rules[0]["seeds"].size(), 1U);
  EXPECT_EQ(rules[0]["seeds"][0]["seed"], 1);
  EXPECT_EQ(rules[1]["kind"], "near");
  EXPECT_EQ(rules[1]["accuracy"]["64"], 51);
  EXPECT_FALSE(rules[1].contains("loss"));
}

TEST(Result, SeedsGiveMeanAndSampleDeviation) {
  const json rules = analysis::rules_json({record("standard", 1, 50), record("standard", 2, 54)});
  EXPECT_EQ(rules[0]["accuracy"]["64"], 52);
  EXPECT_EQ(rules[0]["loss"][1], 52);
  EXPECT_NEAR(rules[0]["spread"]["accuracy"]["64"].get<double>(), std::sqrt(8), 1e-12);
  EXPECT_EQ(rules[0]["seeds"][1]["accuracy"]["64"], 54);
}

// Non-finite numbers are null on disk: means and leads that contain them are NaN, no others.
TEST(Result, NumbersThatAreNotFiniteStayOutOfTheRest) {
  json broken = record("log_length", 2, 64);
  for (json& row : broken["rows"]) row["cross_entropy"][1] = nullptr;
  const json written = json::parse(result_of({record("standard", 1, 50), record("standard", 2, 54),
                                              record("log_length", 1, 60), broken})
                                       .dump());
  const json& row = written["rules"][1];
  ASSERT_EQ(row["rule"], "log_length");
  EXPECT_EQ(row["cross_entropy"]["64"], 1);
  EXPECT_TRUE(row["cross_entropy"]["128"].is_null());
  EXPECT_TRUE(row["spread"]["cross_entropy"]["128"].is_null());
  EXPECT_EQ(row["accuracy"]["128"], 31);
  int checked = 0;
  for (const json& lead : written["leads"]) {
    if (lead["rule"] != "log_length" || lead["metric"] != "cross_entropy" || lead["length"] != 128)
      continue;
    EXPECT_TRUE(lead["mean"].is_null()) << lead;
    EXPECT_EQ(lead["verdict"], "undecided");
    ++checked;
  }
  EXPECT_EQ(checked, 2);  // trained, and near keys only
}

TEST(Result, BitsPerByteAreByPosition) {
  json one = record("standard", 1, 50);
  one["evaluation"]["bytes_per_token"] = 4;
  for (json& row : one["rows"]) row["by_position"] = {std::log(2.0), std::log(4.0), std::log(16.0)};
  const json rules = analysis::rules_json({one});
  EXPECT_NEAR(rules[0]["bits_per_byte"]["1"].get<double>(), 0.25, 1e-12);
  EXPECT_NEAR(rules[0]["bits_per_byte"]["4"].get<double>(), 1, 1e-12);
}

TEST(Result, SummaryBeginsWithTheVerdictAndShowsEveryRow) {
  expect_words(summary(result_of({record("standard", 1, 50)})),
               {"standard" + std::string(20, ' ') + "50.00"});
  const std::string text = summary(result_of(
      {record("standard", 1, 50), record("standard", 2, 54), record("standard", 3, 52),
       record("log_length", 1, 60), record("log_length", 2, 64.2), record("log_length", 3, 62.1)}));
  EXPECT_EQ(text.find("Leads over standard"), 0U) << text;
  expect_words(text, {"log_length helps at 64 (+10.1 [9.9, 10.3]) and 128 (+5.1 [4.9, 5.2])",
                      "52.00 ± 2.00", "log_length, near keys only"});
}

// Entropy of uniform attention appears below the rows: ln n, or the mean of ln 1 ... ln n.
TEST(Result, SummaryNamesTheEntropyOfUniformAttention) {
  json result = result_of({record("standard", 1, 50)});
  expect_words(summary(result), {"uniform attention           4.159    4.852"});
  result["config"]["objective"] = "causal";
  expect_words(summary(result), {"uniform attention           3.206    3.878"});
}

}  // namespace
}  // namespace isentrope::lab
