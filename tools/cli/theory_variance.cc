// isentrope theory variance: checks Var(q.k) = d for q and k, and the scale that normalises them.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/theory/variance.h"
#include "src/config/parse_json.h"
#include "tools/cli/commands.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"
#include "tools/command/arguments.h"
#include "tools/command/reading.h"

namespace isentrope::cli {
namespace {

using nlohmann::ordered_json;

struct VarianceArguments {
  std::optional<std::string> input;
  std::int64_t dim = 64, rows = 4096;
  double mean = 0, deviation = 1;
  std::uint64_t seed = 1;
  bool json = false;
};

struct Rows {
  std::vector<double> numbers;
  std::int64_t dim = 0;
};

Rows rows_of(const Json& json, const std::string& name) {
  Rows rows;
  const Json* const list = json.find(name);
  if (list == nullptr || !list->is_array() || list->items.empty()) {
    throw Error(
        "[variance] the file must hold {\"q\": [[...], ...], \"k\": [[...], ...]}; got no " + name);
  }
  rows.dim = static_cast<std::int64_t>(list->items.front().items.size());
  for (const Json& row : list->items) {
    if (!row.is_array() || static_cast<std::int64_t>(row.items.size()) != rows.dim) {
      throw Error("[variance] the rows of " + name + " must have one length; got " +
                  shortened(row));
    }
    for (const Json& item : row.items) {
      if (!item.value.is_number())
        throw Error("[variance] " + name + " must hold numbers; got " + shortened(item));
      rows.numbers.push_back(item.value.get<double>());
    }
  }
  return rows;
}

std::vector<double> draw(const VarianceArguments& arguments, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(static_cast<std::size_t>(arguments.rows * arguments.dim));
  for (double& value : numbers) value = arguments.mean + arguments.deviation * normal(random);
  return numbers;
}

theory::ScoreVariance measure(VarianceArguments& arguments) {
  if (arguments.input) {
    const Json json = parse_json("variance", command::read_file(*arguments.input));
    const Rows q = rows_of(json, "q"), k = rows_of(json, "k");
    arguments.dim = q.dim;
    if (q.dim != k.dim)
      throw Error(
          fmt::format("[variance] q and k must have one dimension; got {} and {}", q.dim, k.dim));
    return theory::check_score_variance(q.numbers, k.numbers, q.dim);
  }
  const auto bounded = [](const char* name, auto value, auto low, auto high) {
    if (value < low || value > high) {
      throw Error(fmt::format("[variance] {0} must be at least {1} and at most {2}; got {0} = {3}",
                              name, low, high, value));
    }
  };
  bounded("dim", arguments.dim, 2, 8192);
  bounded("rows", arguments.rows, 3, 100000);
  bounded("mean", arguments.mean, -1e6, 1e6);
  bounded("deviation", arguments.deviation, 1e-6, 1e6);
  return theory::check_score_variance(draw(arguments, 2 * arguments.seed),
                                      draw(arguments, 2 * arguments.seed + 1), arguments.dim);
}

void run_variance(VarianceArguments arguments) {
  const theory::ScoreVariance result = measure(arguments);
  std::vector<Row> rows;
  ordered_json checks;
  for (const auto& [key, text, check] :
       {std::tuple{"q_mean", "mean of q", result.q_mean},
        {"k_mean", "mean of k", result.k_mean},
        {"q_variance", "variance of q", result.q_variance},
        {"k_variance", "variance of k", result.k_variance},
        {"q_correlation", "squared correlation of components of q", result.q_correlation},
        {"k_correlation", "squared correlation of components of k", result.k_correlation},
        {"qk_correlation", "correlation of q with k", result.qk_correlation}}) {
    rows.push_back({{"", "assumption", nullptr, text},
                    {"measured", "measured", check.measured},
                    {"expected", "expected", check.expected},
                    {"standard_error", "standard error", check.standard_error},
                    {"holds", "holds", check.holds, check.holds ? "yes" : "NO"}});
    checks[key] = json_of(std::vector<Row>{rows.back()}).front();
  }
  if (arguments.json)
    return print_json({{"dim", arguments.dim},
                       {"holds", result.holds},
                       {"checks", checks},
                       {"score_mean", result.score_mean},
                       {"score_variance", result.score_variance},
                       {"lambda", result.lambda},
                       {"standard_lambda", result.standard_lambda}});
  print_table(rows);
  fmt::print("\nVar(q.k) = {}, against d = {}\n{} gives the logits unit variance; 1/sqrt(d) = {}\n",
             number(result.score_variance), arguments.dim,
             result.score_variance > 0 ? "lambda = " + number(result.lambda) : "no lambda",
             number(result.standard_lambda));
}

}  // namespace

void add_variance_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "variance", "tests the assumptions of Var(q.k) = d on given or sampled q and k");
  const auto arguments = std::make_shared<VarianceArguments>();
  auto* input = app->add_option(
      "--input", arguments->input,
      "JSON file {\"q\": [[...], ...], \"k\": [[...], ...]}; without it q and k are sampled");
  input->excludes(add_dim(*app, arguments->dim, "head dimension d of the sample"));
  app->add_option("--rows", arguments->rows, "rows of the sample")
      ->check(command::whole_number())
      ->capture_default_str()
      ->excludes(input);
  app->add_option("--mean", arguments->mean, "mean of the sample")
      ->check(command::finite_number())
      ->capture_default_str()
      ->excludes(input);
  app->add_option("--deviation", arguments->deviation, "standard deviation of the sample")
      ->check(command::finite_number())
      ->capture_default_str()
      ->excludes(input);
  app->add_option("--seed", arguments->seed, "seed of the sample")
      ->check(command::whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str()
      ->excludes(input);
  app->add_flag("--json", arguments->json, "print JSON");
  app->callback([arguments] { run_variance(*arguments); });
}

}  // namespace isentrope::cli
