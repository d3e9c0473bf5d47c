// Runs the command line.
#pragma once

#include <string>
#include <vector>

#include "tests/support/command.h"

namespace isentrope {

inline Outcome run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ISENTROPE_PROGRAM);
  return run_command(arguments);
}

}  // namespace isentrope
