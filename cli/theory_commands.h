// The subcommands of isentrope theory that have a file of their own: each adds itself to the
// application, and runs when it is named.
#pragma once

#include <CLI/CLI.hpp>

namespace isentrope::cli {

void add_entropy_command(CLI::App& theory);
void add_gradient_command(CLI::App& theory);
void add_variance_command(CLI::App& theory);

}  // namespace isentrope::cli
