// isentrope theory: the laws behind the rules. Here: dimension (how many n keys need) and report.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "isentrope/error.h"
#include "isentrope/theory/dimension.h"
#include "src/files/writing.h"
#include "tools/cli/commands.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"
#include "tools/command/run.h"
#include "tools/report/pages.h"

namespace isentrope::cli {
namespace {

struct DimensionArguments {
  std::string lengths = "64,512,4096,32768,100000,1048576";
  double dim = 64, base = 512, factor = 8;
  bool json = false;
};

void run_dimension(const DimensionArguments& arguments) {
  const double dim = arguments.dim, base = arguments.base, factor = arguments.factor;
  const std::string head = fmt::format("d_n = {} log_{}(n)", number(dim), number(base));
  std::vector<Row> values;
  for (const std::int64_t length : parse_lengths(arguments.lengths)) {
    const double n = static_cast<double>(length);
    const double matched = theory::matched_dimension(n, dim, base);
    values.push_back({{"n", "n", length},
                      {"dimension", number(factor) + " ln n", theory::jl_dimension(n, factor)},
                      {"matched", head, matched},
                      {"", "d_n/d", matched / dim}});
  }
  if (arguments.json)
    return print_json({{"factor", factor},
                       {"dim", dim},
                       {"base", base},
                       {"lambda", theory::matched_factor(dim, base)},
                       {"pair_factor", theory::pair_dimension_factor()},
                       {"values", json_of(values)}});
  fmt::print("dimensions for n keys\n\n");
  print_table(values);
  fmt::print(
      "\nA head of {} dimensions holds {} keys. Multiplying its logits by d_n/d takes the place of "
      "d_n dimensions.\n",
      number(dim), number(theory::jl_capacity(dim, factor)));
  fmt::print(
      "d_n = lambda ln n with lambda = {} / ln {} = {}. Pairs of n vectors lose their entropy, "
      "2 ln n, in {} ln n dimensions.\n",
      number(dim), number(base), number(theory::matched_factor(dim, base)),
      number(theory::pair_dimension_factor()));
}

void add_dimension_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "dimension", "dimensions that n keys need, and the head dimension that suits a length");
  const auto arguments = std::make_shared<DimensionArguments>();
  add_lengths(*app, arguments->lengths);
  app->add_option("--dim", arguments->dim, "head dimension d that suits --base keys")
      ->capture_default_str();
  app->add_option("--base", arguments->base, "the number of keys that --dim suits")
      ->capture_default_str();
  app->add_option("--factor", arguments->factor, "dimensions per unit of ln n")
      ->capture_default_str();
  app->add_flag("--json", arguments->json, "print JSON");
  app->callback([arguments] { run_dimension(*arguments); });
}

struct ReportArguments {
  std::string output = "theory.html";
  std::int64_t dim = 64;
};

void run_report(const ReportArguments& arguments) {
  if (arguments.dim < 2 || arguments.dim > 4096) {
    throw Error(fmt::format("[report] dim must be at least 2 and at most 4096; got dim = {}",
                            arguments.dim));
  }
  command::write_file(arguments.output, report::theory_page(arguments.dim));
  fmt::print("{}\n", arguments.output);
}

void add_report_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "report", "one HTML page: variance, entropy, dimension, gradient, rules side by side");
  const auto arguments = std::make_shared<ReportArguments>();
  app->add_option("-o,--output", arguments->output, "file for the page")->capture_default_str();
  add_dim(*app, arguments->dim);
  app->callback([arguments] { run_report(*arguments); });
}

}  // namespace

int theory_command(int argc, char** argv) {
  CLI::App app(
      "Shows what the softmax scale does to entropy and gradient, and which scale suits a length.",
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
