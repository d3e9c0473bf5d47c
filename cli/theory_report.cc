// isentrope theory report: the page.

#include <fmt/core.h>

#include <memory>
#include <string>

#include "cli/pages.h"
#include "cli/theory_commands.h"
#include "command/files.h"
#include "isentrope/error.h"

namespace isentrope::cli {
namespace {

struct ReportArguments {
  std::string output = "theory.html";
  std::int64_t dim = 64;
};

void run_report(const ReportArguments& arguments) {
  if (arguments.dim < 2 || arguments.dim > 4096) {
    throw Error(fmt::format("[report] dim must be at least 2 and at most 4096; got dim = {}",
                            arguments.dim));
  }
  command::write_file(arguments.output, theory_page(arguments.dim));
  fmt::print("{}\n", arguments.output);
}

}  // namespace

void add_report_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "report", "one HTML page: variance, entropy, dimension, gradient, rules side by side");
  const auto arguments = std::make_shared<ReportArguments>();
  app->add_option("-o,--output", arguments->output, "where the page goes")->capture_default_str();
  app->add_option("--dim", arguments->dim, "head dimension d")->capture_default_str();
  app->callback([arguments] { run_report(*arguments); });
}

}  // namespace isentrope::cli
