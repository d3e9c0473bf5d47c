// isentrope check, run as a program.

#include "isentrope/target.h"
#include "tests/support/isentrope.h"

namespace isentrope {
namespace {

TEST(CheckCommand, AProblemPassesOnEveryTarget) {
  const std::string text = output_of(
      {"check", "dt=bf16 shape=1x2:1x33x65x16 mask=causal:bottom_right,window=10:0 bwd=1"});
  for (const std::string& target : supported_targets())
    expect_words(text, {"PASSED     " + target});
  expect_words(text, {"0 failed"});
}

TEST(CheckCommand, SaysWhatItCannotJudge) {
  expect_words(output_of({"check", "shape=1x1x30x2x4 mask=causal:bottom_right"}), {"MISTRUSTED"});
  expect_words(output_of({"check", "shape=1x1x3x20x4 pages=4 bwd=1"}),
               {"SKIPPED", "paged keys have no backward pass"});
}

// Dropout multiplies a value of 60000 by 4/3, and the gradients follow the infinite output.
TEST(CheckCommand, GradientsMayFollowAnOutputThatOverflowsF16) {
  (void)output_of(
      {"check",
       "dt=f16 shape=1x2:1x70x101x37 mask=causal:bottom_right,dilation=40 bias=1 dropout=0.25 "
       "dropout_seed=7 special=1 bwd=1 stats=collision scale=0.001 seed=24"});
}

TEST(CheckCommand, ReadsAFileAndGenerates) {
  const TemporaryFolder folder;
  const auto file = write_file(folder / "problems.txt",
                               "# two of them\nshape=1x1x3x4x5\n\nshape=1x1x5x4x3 # and this\n");
  const std::string target = supported_targets().front();
  const auto json = json_of(
      {"check", "--file", file.string(), "--generate", "5", "--seed", "3", "--targets", target});
  EXPECT_EQ(json["verdicts"].size(), 7u);
  EXPECT_EQ(json["verdicts"][0]["problem"], "shape=1x1x3x4x5");
  EXPECT_EQ(json["verdicts"][0]["target"], target);
  EXPECT_LE(json["verdicts"][0]["forward"]["error_over_budget"], 1);
}

TEST(CheckCommand, MaximaAreThoseOfTheVerdicts) {
  const std::string target = supported_targets().front();
  const auto each = json_of({"check", "--generate", "20", "--targets", target}),
             most = json_of({"check", "--generate", "20", "--targets", target, "--maxima"});
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

TEST(CheckCommand, RefusesBadInput) {
  expect_refusal({"check"}, {"must give at least one problem; got none"});
  expect_refusal({"check", "--generate", "0"}, {"must give at least one problem; got none"});
  for (const char* wrong : {"shape=1x1", "shape=1x1x1x1x0", "shape=1x3:2x1x1x1", "color=blue"})
    expect_refusal({"check", wrong});
  expect_refusal({"check", "shape=1x1x1x1x1", "--targets", "AVX9"});
  expect_refusal({"check", "--file", "/nonexistent"});
}

}  // namespace
}  // namespace isentrope
