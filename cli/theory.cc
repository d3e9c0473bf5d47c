// isentrope theory: the laws behind the rules.

#include "cli/commands.h"
#include "cli/theory_commands.h"
#include "command/run.h"

namespace isentrope::cli {

int theory_command(int argc, char** argv) {
  CLI::App app(
      "What the softmax scale does to entropy and gradient, and which scale suits a length",
      "isentrope theory");
  add_entropy_command(app);
  add_gradient_command(app);
  add_dimension_command(app);
  add_variance_command(app);
  add_report_command(app);
  app.require_subcommand(1);
  return command::run(app, argc, argv);
}

}  // namespace isentrope::cli
