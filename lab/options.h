// The command line of isentrope extrapolate.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment_options.h"

namespace isentrope::lab {

struct CommandLine {
  ExperimentOptions experiment;
  bool json = false;
  bool quiet = false;
};

// None when the arguments ask for help, which then is printed. Throws Error naming the option at
// fault.
[[nodiscard]] std::optional<CommandLine> parse_command_line(int argc, const char* const* argv);

// Rules separated by commas; those within brackets belong to a rule. Throws Error when one is given
// twice.
[[nodiscard]] std::vector<ModelRule> parse_rules(std::string_view text);

}  // namespace isentrope::lab
