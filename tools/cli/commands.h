// Commands that isentrope runs itself; argv[0] is the command's own name. Each returns the exit
// status: 0, 1 for a failed check, or 2 for invalid input, with one line on stderr.
#pragma once

// Declared here, because CLI11's header takes long to compile.
namespace CLI {
class App;
}

namespace isentrope::cli {

int bench_command(int argc, char** argv);
int check_command(int argc, char** argv);
int report_command(int argc, char** argv);
int scale_command(int argc, char** argv);
int theory_command(int argc, char** argv);

// Subcommands of isentrope theory with their own files. Each function adds one to the application.
void add_entropy_command(CLI::App& theory);
void add_gradient_command(CLI::App& theory);
void add_variance_command(CLI::App& theory);

}  // namespace isentrope::cli
