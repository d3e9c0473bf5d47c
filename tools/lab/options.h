// Command line of isentrope extrapolate.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lab/experiment_options.h"

namespace isentrope::lab {

struct CommandLine {
  ExperimentOptions experiment;
  bool json = false;
  bool quiet = false;
};

// Parses the command line; empty if it printed help. Throws Error naming the invalid option.
[[nodiscard]] std::optional<CommandLine> parse_command_line(int argc, const char* const* argv);

// Parses rules separated by commas outside brackets. Throws Error if one is repeated.
[[nodiscard]] std::vector<ModelRule> parse_rules(std::string_view text);

}  // namespace isentrope::lab
