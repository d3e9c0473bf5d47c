// isentrope bench, run as a program.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "isentrope/target.h"
#include "tests/support/command.h"

namespace isentrope {
namespace {

Outcome bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ISENTROPE_PROGRAM, "bench"});
  return run_command(arguments);
}

TEST(BenchCommand, TimesAProblemOnEveryTarget) {
  const Outcome outcome =
      bench({"dt=bf16 shape=1x2:1x33x65x16 mask=causal:bottom_right bwd=1", "--repetitions", "2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string& target : supported_targets()) {
    EXPECT_NE(outcome.out.find("\n  " + target), std::string::npos) << outcome.out;
  }
}

TEST(BenchCommand, ComparesWithATarget) {
  const std::string slowest = supported_targets().back();
  const Outcome outcome = bench({"shape=1x1x200x200x64", "--targets", supported_targets().front(),
                                 "--compare-target", slowest});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("time/" + slowest), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("  1.00\n"), std::string::npos) << outcome.out;
}

TEST(BenchCommand, ExplainsThePlan) {
  const Outcome outcome = bench({"shape=1x8:2x1x20000x64", "--explain", "--repetitions", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* text : {"forward: ", "splits", "register tile of ", "predicted"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << "\n" << outcome.out;
  }
}

TEST(BenchCommand, ExplainsWhichInstructionsMultiplyBf16) {
  const Outcome outcome = bench({"dt=bf16 shape=1x1x4x4x32", "--explain", "--repetitions", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("products of bf16 with vectors of 64 bytes: "), std::string::npos)
      << outcome.out;
}

TEST(BenchCommand, WritesJson) {
  const std::string target = supported_targets().front();
  const Outcome outcome = bench({"shape=1x2x10x20x8", "shape=1x1x4x4x4 bwd=1", "--targets", target,
                                 "--repetitions", "3", "--json", "--all-threads"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
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
  const Outcome outcome = bench({"--limits", "--targets", target, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["targets"][0]["target"], target);
  EXPECT_GT(json["targets"][0]["flops"], 1e8);
  EXPECT_GT(json["memory_read"], 1e8);
}

TEST(BenchCommand, HelpHasAnExample) {
  const Outcome outcome = bench({"--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("isentrope bench '"), std::string::npos) << outcome.out;
}

TEST(BenchCommand, BadInputIsExitStatusTwoAndOneLine) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"shape=1x1"},
                                                    {"shape=1x3:2x1x1x1"},
                                                    {"color=blue"},
                                                    {"shape=1x1x3x20x4 pages=4 bwd=1"},
                                                    {"shape=1x1x1x1x1", "--targets", "AVX9"},
                                                    {"shape=1x1x1x1x1", "--compare-target", "AVX9"},
                                                    {"shape=1x1x1x1x1", "--repetitions", "0"}}) {
    const Outcome outcome = bench(arguments);
    EXPECT_EQ(outcome.code, 2) << (arguments.empty() ? "" : arguments[0]);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace isentrope
