// isentrope theory: the laws behind the rules. Here: dimension (how many n keys need) and report.

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/theory/dimension.h"
#include "src/files/writing.h"
#include "tools/cli/commands.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"
#include "tools/cli/theory_commands.h"
#include "tools/command/arguments.h"
#include "tools/command/run.h"
#include "tools/report/law_pages.h"

namespace isentrope::cli {
namespace {

using nlohmann::ordered_json;

struct DimensionArguments {
  std::string lengths = "64,512,4096,32768,100000,1048576";
  double dim = 64, base = 512, factor = 8;
  bool json = false;
};

void run_dimension(const DimensionArguments& arguments) {
  ordered_json values = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  for (const std::int64_t length : parse_lengths(arguments.lengths)) {
    const double n = static_cast<double>(length);
    const double needed = theory::jl_dimension(n, arguments.factor);
    const double matched = theory::matched_dimension(n, arguments.dim, arguments.base);
    values.push_back({{"n", length}, {"dimension", needed}, {"matched", matched}});
    rows.push_back(
        {std::to_string(length), number(needed), number(matched), number(matched / arguments.dim)});
  }
  if (arguments.json) {
    const ordered_json json = {{"factor", arguments.factor},
                               {"dim", arguments.dim},
                               {"base", arguments.base},
                               {"lambda", theory::matched_factor(arguments.dim, arguments.base)},
                               {"pair_factor", theory::pair_dimension_factor()},
                               {"values", values}};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("dimensions for n keys\n\n");
  print_table(
      {"n", fmt::format("{} ln n", number(arguments.factor)),
       fmt::format("d_n = {} log_{}(n)", number(arguments.dim), number(arguments.base)), "d_n/d"},
      rows);
  fmt::print(
      "\nA head of {} dimensions holds {} keys. Multiplying its logits by d_n/d takes the place of "
      "d_n dimensions.\n",
      number(arguments.dim), number(theory::jl_capacity(arguments.dim, arguments.factor)));
  fmt::print(
      "d_n = lambda ln n with lambda = {} / ln {} = {}. Pairs of n vectors lose their entropy, "
      "2 ln n, in {} ln n dimensions.\n",
      number(arguments.dim), number(arguments.base),
      number(theory::matched_factor(arguments.dim, arguments.base)),
      number(theory::pair_dimension_factor()));
}

void add_dimension_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "dimension", "dimensions that n keys need, and the head dimension that suits a length");
  const auto arguments = std::make_shared<DimensionArguments>();
  app->add_option("--lengths", arguments->lengths,
                  "lengths n, as 64,512 or 40:20000:40 or 64:65536:x2")
      ->capture_default_str();
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
  app->add_option("--dim", arguments->dim, "head dimension d")
      ->check(command::whole_number())
      ->capture_default_str();
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
