// isentrope bench, run as a program.

#include "isentrope/target.h"
#include "tests/support/isentrope.h"

namespace isentrope {
namespace {

TEST(BenchCommand, TimesAProblemOnEveryTarget) {
  const std::string text =
      output_of({"bench", "dt=bf16 shape=1x2:1x33x65x16 mask=causal:bottom_right bwd=1",
                 "--repetitions", "2"});
  for (const std::string& target : supported_targets()) expect_words(text, {"\n  " + target});
}

TEST(BenchCommand, ComparesWithATarget) {
  const std::string slowest = supported_targets().back();
  expect_words(output_of({"bench", "shape=1x1x200x200x64", "--targets", supported_targets().front(),
                          "--compare-target", slowest}),
               {"time/" + slowest, "  1.00\n"});
}

TEST(BenchCommand, ExplainsThePlan) {
  expect_words(output_of({"bench", "shape=1x8:2x1x20000x64", "--explain", "--repetitions", "1"}),
               {"forward: ", "splits", "register tile of ", "predicted"});
  expect_words(output_of({"bench", "dt=bf16 shape=1x1x4x4x32", "--explain", "--repetitions", "1"}),
               {"products of bf16 with vectors of 64 bytes: "});
}

TEST(BenchCommand, WritesJson) {
  const std::string target = supported_targets().front();
  const auto json = json_of({"bench", "shape=1x2x10x20x8", "shape=1x1x4x4x4 bwd=1", "--targets",
                             target, "--repetitions", "3", "--all-threads"});
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["problem"], "shape=1x2x10x20x8");
  EXPECT_EQ(json[0]["flops"], 4.0 * 2 * 10 * 20 * 8);
  EXPECT_EQ(json[0]["timings"][0]["target"], target);
  EXPECT_EQ(json[0]["timings"][0]["repetitions"].size(), 3u);
  EXPECT_GT(json[0]["timings"][0]["predicted_seconds"], 0);
  EXPECT_EQ(json[0]["plan"]["work_items"], 2);
  EXPECT_EQ(json[1]["flops"], 7 * 2.0 * 4 * 4 * 4);
  EXPECT_TRUE(json[1].contains("backward_plan"));
}

TEST(BenchCommand, MeasuresLimits) {
  const std::string target = supported_targets().front();
  const auto json = json_of({"bench", "--limits", "--targets", target});
  EXPECT_EQ(json["targets"][0]["target"], target);
  EXPECT_GT(json["targets"][0]["flops"], 1e8);
  EXPECT_GT(json["memory_read"], 1e8);
}

TEST(BenchCommand, HelpHasAnExample) {
  expect_words(output_of({"bench", "--help"}), {"isentrope bench '"});
}

TEST(BenchCommand, RefusesBadInput) {
  const std::string line = "shape=1x1x1x1x1";
  expect_refusal({"bench"});
  for (const char* wrong :
       {"shape=1x1", "shape=1x3:2x1x1x1", "color=blue", "shape=1x1x3x20x4 pages=4 bwd=1"})
    expect_refusal({"bench", wrong});
  expect_refusal({"bench", line, "--targets", "AVX9"});
  expect_refusal({"bench", line, "--compare-target", "AVX9"});
}

}  // namespace
}  // namespace isentrope
