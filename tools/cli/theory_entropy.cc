// isentrope theory entropy: entropy of rows at a scale, and the scale for an entropy.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/scale_rule.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/row_expectation.h"
#include "tools/cli/commands.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"

namespace isentrope::cli {
namespace {

struct EntropyArguments {
  std::string lengths = "64,512,4096,32768";
  std::optional<std::string> rule, hold;
  std::optional<double> lambda, target;
  std::int64_t dim = 64;
  bool json = false;
};

// Returns the average over rows; empty outside its domain.
std::optional<double> row_entropy(double n, std::int64_t dim, double lambda) {
  if (lambda * static_cast<double>(dim) > 400) return {};
  return theory::sphere_row(n, dim, lambda).entropy;
}

double scale_at(const EntropyArguments& arguments, const ScaleRule& rule, std::int64_t n) {
  if (arguments.lambda) return *arguments.lambda;
  if (arguments.target)
    return theory::lambda_of_entropy(*arguments.target, static_cast<double>(n), arguments.dim);
  return rule.lambda({n, n - 1, n}, arguments.dim);
}

void print_held(const EntropyArguments& arguments) {
  const auto ends = parse_lengths(*arguments.hold, "hold");
  if (ends.size() != 2)
    throw Error("[entropy] --hold must be two lengths; got \"" + *arguments.hold + "\"");
  const theory::EntropyBase base = theory::entropy_base(
      static_cast<double>(ends[0]), static_cast<double>(ends[1]), arguments.dim);
  if (arguments.json)
    return print_json({{"dim", arguments.dim},
                       {"lengths", ends},
                       {"base", base.base},
                       {"kappa", base.kappa},
                       {"entropy", base.entropy},
                       {"in_range", base.in_range}});
  fmt::print("base {}, kappa {}: entropy {} at n = {} and at n = {}\n", number(base.base),
             number(base.kappa), number(base.entropy), ends[0], ends[1]);
}

void run_entropy(const EntropyArguments& arguments) {
  if (arguments.hold) return print_held(arguments);
  const ScaleRule rule =
      arguments.rule ? parse_shared_rule(*arguments.rule, "entropy") : ScaleRule::standard();
  std::vector<Row> values;
  const auto marked = [](double value, bool in_range) {
    return number(value) + (in_range ? " " : "*");
  };
  bool outside = false;
  for (const std::int64_t length : parse_lengths(arguments.lengths)) {
    const double n = static_cast<double>(length), lambda = scale_at(arguments, rule, length);
    const theory::SphereEntropy law = theory::sphere_entropy(n, arguments.dim, lambda);
    const auto mean = row_entropy(n, arguments.dim, lambda);
    outside = outside || !law.in_range || !law.laplace_in_range;
    values.push_back(
        {{"n", "n", length},
         {"lambda", "lambda", lambda},
         {"entropy", "entropy ", law.entropy, marked(law.entropy, law.in_range)},
         {"laplace", "laplace ", law.laplace, marked(law.laplace, law.laplace_in_range)},
         {"saddle", "", law.saddle},
         {"correction", "", law.correction},
         {"in_range", "", law.in_range},
         {"laplace_in_range", "", law.laplace_in_range},
         mean ? Cell{"row_mean", "mean of rows", *mean}
              : Cell{"row_mean", "mean of rows", nullptr, "-"},
         {"", "ln n", std::log(n)}});
  }
  const double kappa = theory::kappa_of_base(512, arguments.dim);
  if (arguments.json)
    return print_json({{"dim", arguments.dim}, {"kappa", kappa}, {"values", json_of(values)}});
  fmt::print("entropy of softmax over keys on the sphere of radius sqrt({}), in nats\n\n",
             arguments.dim);
  print_table(values);
  fmt::print("\nentropy: ln n + ln E[e^z] - E[z e^z]/E[e^z].  laplace: ln n - {:.4f} lambda d.\n",
             theory::laplace_coefficient());
  fmt::print("kappa ln n / d is 1/sqrt(d) at 512 keys for kappa = {}.\n", number(kappa));
  if (outside)
    fmt::print(
        "*: outside [0, ln n], so the approximation does not hold here; the mean of rows does, "
        "where it is given.\n");
}

}  // namespace

void add_entropy_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "entropy", "entropy of a row: the law, its estimate, and the scale for a target");
  const auto arguments = std::make_shared<EntropyArguments>();
  auto* lambda = app->add_option("--lambda", arguments->lambda, "the softmax scale (1/sqrt(d))");
  auto* rule =
      app->add_option("--rule", arguments->rule, "the rule that gives the scale")->excludes(lambda);
  auto* target =
      app->add_option("--target", arguments->target, "solve for the lambda that gives this entropy")
          ->excludes(lambda)
          ->excludes(rule);
  add_dim(*app, arguments->dim);
  auto* lengths = add_lengths(*app, arguments->lengths);
  auto* hold = app->add_option(
      "--hold", arguments->hold,
      "two lengths: find the base B at which log_B(n)/sqrt(d) gives both the same entropy");
  for (auto* other : {lambda, rule, target, lengths}) hold->excludes(other);
  app->add_flag("--json", arguments->json, "print JSON");
  app->callback([arguments] { run_entropy(*arguments); });
}

}  // namespace isentrope::cli
