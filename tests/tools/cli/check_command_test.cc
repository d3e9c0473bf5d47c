// isentrope check, run as a program.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "isentrope/target.h"
#include "tests/support/command.h"

namespace isentrope {
namespace {

Outcome check(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ISENTROPE_PROGRAM, "check"});
  return run_command(arguments);
}

TEST(CheckCommand, AProblemPassesOnEveryTarget) {
  const Outcome outcome =
      check({"dt=bf16 shape=1x2:1x33x65x16 mask=causal:bottom_right,window=10:0 bwd=1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string& target : supported_targets()) {
    EXPECT_NE(outcome.out.find("PASSED     " + target), std::string::npos) << outcome.out;
  }
  EXPECT_NE(outcome.out.find("0 failed"), std::string::npos);
}

TEST(CheckCommand, SaysWhatItCannotJudge) {
  const Outcome zeros = check({"shape=1x1x30x2x4 mask=causal:bottom_right"});
  EXPECT_EQ(zeros.code, 0);
  EXPECT_NE(zeros.out.find("MISTRUSTED"), std::string::npos) << zeros.out;
  const Outcome pages = check({"shape=1x1x3x20x4 pages=4 bwd=1"});
  EXPECT_NE(pages.out.find("SKIPPED"), std::string::npos) << pages.out;
  EXPECT_NE(pages.out.find("paged keys have no backward pass"), std::string::npos) << pages.out;
}

// Dropout multiplies a value of 60000 by 4/3, and the gradients follow the infinite output.
TEST(CheckCommand, GradientsMayFollowAnOutputThatOverflowsF16) {
  const Outcome outcome = check(
      {"dt=f16 shape=1x2:1x70x101x37 mask=causal:bottom_right,dilation=40 bias=1 dropout=0.25 "
       "dropout_seed=7 special=1 bwd=1 stats=collision scale=0.001 seed=24"});
  EXPECT_EQ(outcome.code, 0) << outcome.out;
}

TEST(CheckCommand, ReadsAFileAndGenerates) {
  const TemporaryFolder folder;
  const auto file = write_file(folder / "problems.txt",
                               "# two of them\nshape=1x1x3x4x5\n\nshape=1x1x5x4x3 # and this\n");
  const std::string target = supported_targets().front();
  const Outcome outcome = check(
      {"--file", file.string(), "--generate", "5", "--seed", "3", "--targets", target, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["verdicts"].size(), 7u);
  EXPECT_EQ(json["verdicts"][0]["problem"], "shape=1x1x3x4x5");
  EXPECT_EQ(json["verdicts"][0]["target"], target);
  EXPECT_LE(json["verdicts"][0]["forward"]["error_over_budget"], 1);
}

TEST(CheckCommand, MaximaAreThoseOfTheVerdicts) {
  const std::string target = supported_targets().front();
  const std::vector<std::string> problems = {"--generate", "20", "--targets", target, "--json"};
  std::vector<std::string> maxima = problems;
  maxima.emplace_back("--maxima");
  const auto each = nlohmann::json::parse(check(problems).out);
  const auto most = nlohmann::json::parse(check(maxima).out);
  EXPECT_TRUE(most["verdicts"].empty());
  EXPECT_EQ(most["summary"], each["summary"]);
  double worst_verdict = 0, worst_result = 0;
  for (const auto& verdict : each["verdicts"]) {
    for (const char* pass : {"forward", "backward"}) {
      if (verdict.contains(pass)) {
        worst_verdict = std::max(worst_verdict, verdict[pass]["error_over_budget"].get<double>());
      }
    }
  }
  for (const auto& [result, of_target] : most["error_over_budget"].items()) {
    const auto& ratios = of_target[target];
    EXPECT_EQ(ratios["quantiles"].back(), ratios["maximum"]) << result;
    worst_result = std::max(worst_result, ratios["maximum"].get<double>());
  }
  EXPECT_GT(worst_verdict, 0);
  EXPECT_EQ(worst_result, worst_verdict);
}

TEST(CheckCommand, BadInputIsExitStatusTwoAndOneLine) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"shape=1x1"},
                                                    {"shape=1x1x1x1x0"},
                                                    {"shape=1x3:2x1x1x1"},
                                                    {"color=blue"},
                                                    {"shape=1x1x1x1x1", "--targets", "AVX9"},
                                                    {"--file", "/nonexistent"},
                                                    {"--generate", "-1"}}) {
    const Outcome outcome = check(arguments);
    EXPECT_EQ(outcome.code, 2) << (arguments.empty() ? "" : arguments[0]);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace isentrope
