// What a user is told: options, progress, result.json and the table.

#include <gtest/gtest.h>

#include <cmath>

#include "isentrope/error.h"
#include "lab/options.h"
#include "lab/progress.h"
#include "lab/result.h"

namespace isentrope::lab {
namespace {

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "isentrope-extrapolate");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

ModelResult model_result(std::uint64_t seed, double accuracy) {
  const Evaluation near{.tokens = 640, .predictions = 96, .accuracy = accuracy, .entropy = 2};
  const Evaluation far{.tokens = 600, .predictions = 90, .accuracy = accuracy / 2, .entropy = 4};
  return {.seed = seed,
          .parameters = 1000,
          .evaluations = {near, far},
          .loss = {5, accuracy},
          .seconds_per_step = 0.1};
}

std::string shown(const std::function<void(Progress&)>& use, Progress::Style style) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  {
    Progress progress(stream, style);
    use(progress);
  }
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

void three_steps(Progress& progress) {
  progress.expect_steps(6);
  for (int step = 1; step <= 3; ++step) progress.step("standard", step, 3, 2.5, 0.5);
}

TEST(Options, RulesKeepTheirOwnCommas) {
  const auto rules = parse_rules("standard,entropy_invariant(base=64,n_min=2),log_length");
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[1], ScaleRule::entropy_invariant(64, 2));
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
  EXPECT_EQ(options.width, 96);
  EXPECT_EQ(options.layers, 6);
  EXPECT_EQ(parse({"--preset=demo"}).experiment.layers, 4);
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
  EXPECT_NE(text.find("\r\033[K"), std::string::npos);
}

TEST(Progress, CanBeSilent) { EXPECT_EQ(shown(three_steps, Progress::Style::silent), ""); }

TEST(Progress, ClockReadsAsAClock) {
  EXPECT_EQ(clock_text(7.4), "0:07");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3723), "1:02:03");
}

TEST(Result, OneSeedHasNoSpread) {
  const auto rule = rule_json("standard", {64, 128}, {model_result(1, 50)});
  EXPECT_EQ(rule["accuracy"]["64"], 50);
  EXPECT_EQ(rule["accuracy"]["128"], 25);
  EXPECT_EQ(rule["entropy"]["128"], 4);
  EXPECT_EQ(rule["loss"], (nlohmann::json{5, 50}));
  EXPECT_FALSE(rule.contains("spread"));
  ASSERT_EQ(rule["seeds"].size(), 1U);
  EXPECT_EQ(rule["seeds"][0]["seed"], 1);
}

TEST(Result, SeedsGiveMeanAndSampleDeviation) {
  const auto rule = rule_json("standard", {64, 128}, {model_result(1, 50), model_result(2, 54)});
  EXPECT_EQ(rule["accuracy"]["64"], 52);
  EXPECT_EQ(rule["loss"][1], 52);
  EXPECT_NEAR(rule["spread"]["accuracy"]["64"].get<double>(), std::sqrt(8), 1e-12);
  EXPECT_EQ(rule["seeds"][1]["accuracy"]["64"], 54);
}

TEST(Result, TableShowsEveryRuleAtEveryLength) {
  nlohmann::json result = {{"train_length", 64}, {"lengths", {64, 128}}};
  result["rules"] = {rule_json("standard", {64, 128}, {model_result(1, 50)})};
  EXPECT_NE(table(result).find("standard    50.00    25.00\n"), std::string::npos) << table(result);
  result["rules"] = {rule_json("standard", {64, 128}, {model_result(1, 50), model_result(2, 54)})};
  EXPECT_NE(table(result).find("52.00 ± 2.83"), std::string::npos) << table(result);
}

}  // namespace
}  // namespace isentrope::lab
