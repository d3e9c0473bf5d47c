// Runs the command line.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace isentrope {

inline Outcome run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ISENTROPE_PROGRAM);
  return run_command(arguments);
}

// Returns what a command prints that succeeds.
inline std::string output_of(std::vector<std::string> arguments) {
  const Outcome outcome = run(std::move(arguments));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

inline nlohmann::json json_of(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  return nlohmann::json::parse(output_of(std::move(arguments)));
}

// Expects one line on stderr of a command, which prints nothing else and names itself.
inline void expect_refusal(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& words = {}) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("isentrope " + arguments.front() + ": ")) << outcome.err;
  expect_one_line(outcome, words);
}

}  // namespace isentrope
