// The command line of isentrope extrapolate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment.h"

namespace isentrope::lab {

struct CommandLine {
  ExperimentOptions experiment;
  bool json = false;
  bool quiet = false;
  std::string help;  // not empty: show it and stop
};

// Throws Error naming the option at fault.
[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv);

// "standard,constant(scale=1),x(a=1,b=2)" -> the rules; commas within parentheses belong to a rule.
[[nodiscard]] std::vector<ScaleRule> parse_rules(std::string_view text);

}  // namespace isentrope::lab
