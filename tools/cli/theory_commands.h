// Subcommands of isentrope theory with their own files. Each function adds one to the application.
#pragma once

#include <CLI/CLI.hpp>

namespace isentrope::cli {

void add_entropy_command(CLI::App& theory);
void add_gradient_command(CLI::App& theory);
void add_variance_command(CLI::App& theory);

}  // namespace isentrope::cli
