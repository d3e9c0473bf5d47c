// isentrope theory gradient: the scale with the largest gradient, and the gradients under rules.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/scale_rule.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/sampled_gradient.h"
#include "tools/cli/commands.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"

namespace isentrope::cli {
namespace {

using nlohmann::ordered_json;

struct GradientArguments {
  std::string scores = "normal", lengths = "40:20000:40";
  std::optional<std::string> dims;
  std::vector<std::string> rules;
  std::vector<double> between;
  std::int64_t dim = 128;
  bool json = false;
};

bool are_normal(const GradientArguments& arguments) { return arguments.scores == "normal"; }

// Returns the members that say what the scores are.
ordered_json scores_json(const GradientArguments& arguments) {
  ordered_json json = {{"scores", arguments.scores}};
  if (!are_normal(arguments)) json["dim"] = arguments.dim;
  return json;
}

std::string scores_text(const GradientArguments& arguments) {
  return fmt::format("alpha that maximises alpha (1 - sum p^2), {} scores{}", arguments.scores,
                     are_normal(arguments) ? "" : fmt::format(" in {} dimensions", arguments.dim));
}

void print_optima(const GradientArguments& arguments) {
  const bool normal = are_normal(arguments);
  const std::vector<std::int64_t> lengths = parse_lengths(arguments.lengths);
  std::vector<double> alphas, fitted_n, fitted_alphas;
  for (const std::int64_t length : lengths) {
    const double n = static_cast<double>(length);
    alphas.push_back(normal ? theory::normal_optimum(n) : theory::cosine_optimum(n, arguments.dim));
    if (length == 1) continue;  // both the optimum and ln n are 0
    fitted_n.push_back(n);
    fitted_alphas.push_back(alphas.back());
  }
  theory::Fit fit{0, 0, 0};
  if (!fitted_n.empty())
    fit = normal ? theory::fit_sqrt_log(fitted_n, fitted_alphas)
                 : theory::fit_log(fitted_n, fitted_alphas);
  const std::string form = normal ? "c sqrt(ln n)" : "c ln n";
  std::vector<Row> values;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const double x = std::log(static_cast<double>(lengths[i]));
    values.push_back({{"n", "n", lengths[i]},
                      {"alpha", "alpha", alphas[i]},
                      {"", form, fit.c * (normal ? std::sqrt(x) : x)}});
  }
  if (arguments.json) {
    ordered_json json = scores_json(arguments);
    json["values"] = json_of(values);
    json["fit"] = {{"form", form},
                   {"c", fit.c},
                   {"rms_residual", fit.rms_residual},
                   {"largest_residual", fit.largest_residual}};
    return print_json(json);
  }
  fmt::print("{}\n\n", scores_text(arguments));
  print_table(values, std::max<std::size_t>(1, (lengths.size() + 19) / 20));
  fmt::print("\nfit over {} lengths: alpha = {:.6g} {}, rms residual {:.3g}, largest {:.3g}\n",
             lengths.size(), fit.c, form.substr(2), fit.rms_residual, fit.largest_residual);
}

void print_coefficients(const GradientArguments& arguments) {
  std::vector<Row> values;
  for (const std::int64_t dim : parse_lengths(*arguments.dims, "dims"))
    values.push_back({{"dim", "d", dim}, {"c", "c", theory::cosine_coefficient(dim)}});
  if (arguments.json)
    return print_json({{"scores", "cosine"}, {"form", "c ln n"}, {"values", json_of(values)}});
  fmt::print("alpha = c ln n for cosine scores, fitted over n = 40, 80, ... 20000\n\n");
  print_table(values);
}

void print_rules(const GradientArguments& arguments) {
  const auto lengths = parse_lengths(arguments.lengths);
  if (lengths.size() > 100)
    throw Error("[gradient] --rule must come with at most 100 lengths; got " +
                std::to_string(lengths.size()));
  std::vector<std::pair<ScaleRule, std::vector<Row>>> tables;
  for (const std::string& text : arguments.rules) {
    const ScaleRule rule = parse_shared_rule(text, "gradient");
    std::vector<Row>& values = tables.emplace_back(rule, std::vector<Row>{}).second;
    for (const std::int64_t n : lengths) {
      const double alpha =
          rule.lambda({n, n - 1, n}, arguments.dim) * std::sqrt(static_cast<double>(arguments.dim));
      const double length = static_cast<double>(n);
      const auto spread = theory::sampled_gradient(length, std::vector{alpha}).front();
      values.push_back({{"n", "n", n},
                        {"alpha", "alpha", alpha},
                        {"mass", "mass", theory::rule_gradient_mass(rule, n, arguments.dim)},
                        {"annealed", "annealed", theory::normal_gradient_mass(length, alpha)},
                        {"lower_decile", "lower decile", spread.lower_decile},
                        {"starved", "starved rows", spread.starved,
                         fmt::format("{:.1f} %", 100 * spread.starved)}});
    }
  }
  if (arguments.json) {
    ordered_json json = {
        {"scores", "normal"}, {"dim", arguments.dim}, {"rules", ordered_json::array()}};
    for (const auto& [rule, values] : tables)
      json["rules"].push_back({{"rule", rule.text()}, {"values", json_of(values)}});
    return print_json(json);
  }
  for (const auto& [rule, values] : tables) {
    fmt::print("{}, normal scores, head dimension {}\n\n", rule.text(), arguments.dim);
    print_table(values);
    fmt::print("\n");
  }
  fmt::print(
      "mass: mean of alpha (1 - sum p^2) over rows.  annealed: alpha (1 - e^(alpha^2)/n), no "
      "longer a\n"
      "mass where it is below 0.  starved: rows where one key has nearly all weight, 1 - sum p^2 < "
      "0.05.\n");
}

void print_between(const GradientArguments& arguments) {
  const auto length = [&](double alpha) {
    return are_normal(arguments) ? theory::normal_optimum_length(alpha)
                                 : theory::cosine_optimum_length(alpha, arguments.dim);
  };
  const auto [low, high] = std::minmax(arguments.between[0], arguments.between[1]);
  if (arguments.json) {
    ordered_json json = scores_json(arguments);
    json["alpha"] = {low, high};
    json["n"] = {length(low), length(high)};
    return print_json(json);
  }
  fmt::print("{}: {} to {} for n from {:.0f} to {:.0f}\n", scores_text(arguments), number(low),
             number(high), std::ceil(length(low)), std::floor(length(high)));
}

void run_gradient(const GradientArguments& arguments, const CLI::App& app) {
  for (const auto& [option, scores] : {std::pair{"--dims", "cosine"}, {"--rule", "normal"}}) {
    if (app.count(option) > 0 && app.count("--scores") > 0 && arguments.scores != scores)
      throw Error(fmt::format("[gradient] {} must come with {} scores; got {}", option, scores,
                              arguments.scores));
  }
  if (!arguments.rules.empty()) return print_rules(arguments);
  if (!arguments.between.empty()) return print_between(arguments);
  if (arguments.dims) return print_coefficients(arguments);
  print_optima(arguments);
}

}  // namespace

void add_gradient_command(CLI::App& theory) {
  CLI::App* app = theory.add_subcommand(
      "gradient", "the scale with the largest gradient, its fit, and the gradient under rules");
  const auto arguments = std::make_shared<GradientArguments>();
  app->add_option("--scores", arguments->scores, "distribution of the scores")
      ->capture_default_str()
      ->check(CLI::IsMember({"normal", "cosine"}));
  auto* dim = add_dim(*app, arguments->dim, "head dimension d, of cosine scores and of --rule");
  auto* lengths = add_lengths(*app, arguments->lengths);
  auto* dims = app->add_option("--dims", arguments->dims,
                               "fit c ln n to cosine scores in each of these dimensions")
                   ->excludes(dim)
                   ->excludes(lengths);
  auto* between = app->add_option("--between", arguments->between,
                                  "find the lengths whose optimal alpha is between these two")
                      ->expected(2)
                      ->delimiter(',')
                      ->excludes(dims)
                      ->excludes(lengths);
  app->add_option("--rule", arguments->rules, "show the gradient mass of rows under these rules")
      ->excludes(dims)
      ->excludes(between);
  app->add_flag("--json", arguments->json, "print JSON");
  app->callback([arguments, app] { run_gradient(*arguments, *app); });
}

}  // namespace isentrope::cli
