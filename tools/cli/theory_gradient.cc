// isentrope theory gradient: the scale with the largest gradient, and the gradients under rules.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/scale_rule.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/sampled_gradient.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"
#include "tools/cli/theory_commands.h"
#include "tools/command/arguments.h"

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

struct Optima {
  std::vector<std::int64_t> lengths;
  std::vector<double> alpha;
};

Optima optima_of(const GradientArguments& arguments) {
  Optima optima{parse_lengths(arguments.lengths), {}};
  for (const std::int64_t n : optima.lengths) {
    const double length = static_cast<double>(n);
    optima.alpha.push_back(arguments.scores == "normal"
                               ? theory::normal_optimum(length)
                               : theory::cosine_optimum(length, arguments.dim));
  }
  return optima;
}

// Skips n = 1, where both the optimum and ln n are 0.
theory::Fit fit_of(const GradientArguments& arguments, const Optima& optima) {
  std::vector<double> n, alpha;
  for (std::size_t i = 0; i < optima.lengths.size(); ++i) {
    if (optima.lengths[i] == 1) continue;
    n.push_back(static_cast<double>(optima.lengths[i]));
    alpha.push_back(optima.alpha[i]);
  }
  if (n.empty()) return {0, 0, 0};
  return arguments.scores == "normal" ? theory::fit_sqrt_log(n, alpha) : theory::fit_log(n, alpha);
}

void print_optima(const GradientArguments& arguments) {
  const Optima optima = optima_of(arguments);
  const theory::Fit fit = fit_of(arguments, optima);
  const bool normal = arguments.scores == "normal";
  const std::string form = normal ? "c sqrt(ln n)" : "c ln n";
  if (arguments.json) {
    ordered_json json = {{"scores", arguments.scores}};
    if (!normal) json["dim"] = arguments.dim;
    json["values"] = ordered_json::array();
    for (std::size_t i = 0; i < optima.lengths.size(); ++i) {
      json["values"].push_back({{"n", optima.lengths[i]}, {"alpha", optima.alpha[i]}});
    }
    json["fit"] = {{"form", form},
                   {"c", fit.c},
                   {"rms_residual", fit.rms_residual},
                   {"largest_residual", fit.largest_residual}};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("alpha that maximises alpha (1 - sum p^2), {} scores{}\n\n", arguments.scores,
             normal ? "" : fmt::format(" in {} dimensions", arguments.dim));
  std::vector<std::vector<std::string>> rows;
  const std::size_t step = std::max<std::size_t>(1, (optima.lengths.size() + 19) / 20);
  for (std::size_t i = 0; i < optima.lengths.size(); i += step) {
    const double x = std::log(static_cast<double>(optima.lengths[i]));
    rows.push_back({std::to_string(optima.lengths[i]), number(optima.alpha[i]),
                    number(fit.c * (normal ? std::sqrt(x) : x))});
  }
  print_table({"n", "alpha", form}, rows);
  fmt::print("\nfit over {} lengths: alpha = {:.6g} {}, rms residual {:.3g}, largest {:.3g}\n",
             optima.lengths.size(), fit.c, form.substr(2), fit.rms_residual, fit.largest_residual);
}

void print_coefficients(const GradientArguments& arguments) {
  ordered_json values = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  for (const std::int64_t dim : parse_lengths(*arguments.dims, "dims")) {
    const double c = theory::cosine_coefficient(dim);
    values.push_back({{"dim", dim}, {"c", c}});
    rows.push_back({std::to_string(dim), number(c)});
  }
  if (arguments.json) {
    fmt::print("{}\n",
               ordered_json{{"scores", "cosine"}, {"form", "c ln n"}, {"values", values}}.dump(2));
    return;
  }
  fmt::print("alpha = c ln n for cosine scores, fitted over n = 40, 80, ... 20000\n\n");
  print_table({"d", "c"}, rows);
}

void print_rules(const GradientArguments& arguments) {
  const auto lengths = parse_lengths(arguments.lengths);
  if (lengths.size() > 100)
    throw Error("[gradient] --rule must come with at most 100 lengths; got " +
                std::to_string(lengths.size()));
  ordered_json json = {
      {"scores", "normal"}, {"dim", arguments.dim}, {"rules", ordered_json::array()}};
  for (const std::string& text : arguments.rules) {
    const ScaleRule rule = ScaleRule::parse(text);
    ordered_json values = ordered_json::array();
    std::vector<std::vector<std::string>> rows;
    for (const std::int64_t n : lengths) {
      const double alpha =
          rule.lambda({n, n - 1, n}, arguments.dim) * std::sqrt(static_cast<double>(arguments.dim));
      const double length = static_cast<double>(n);
      const auto spread = theory::sampled_gradient(length, std::vector{alpha}).front();
      const double mass = theory::rule_gradient_mass(rule, n, arguments.dim);
      const double annealed = theory::normal_gradient_mass(length, alpha);
      values.push_back({{"n", n},
                        {"alpha", alpha},
                        {"mass", mass},
                        {"annealed", annealed},
                        {"lower_decile", spread.lower_decile},
                        {"starved", spread.starved}});
      rows.push_back({std::to_string(n), number(alpha), number(mass), number(annealed),
                      number(spread.lower_decile), fmt::format("{:.1f} %", 100 * spread.starved)});
    }
    json["rules"].push_back({{"rule", rule.text()}, {"values", values}});
    if (arguments.json) continue;
    fmt::print("{}, normal scores, head dimension {}\n\n", rule.text(), arguments.dim);
    print_table({"n", "alpha", "mass", "annealed", "lower decile", "starved rows"}, rows);
    fmt::print("\n");
  }
  if (arguments.json) return fmt::print("{}\n", json.dump(2));
  fmt::print(
      "mass: mean of alpha (1 - sum p^2) over rows.  annealed: alpha (1 - e^(alpha^2)/n), no "
      "longer a\n"
      "mass where it is below 0.  starved: rows where one key has nearly all weight, 1 - sum p^2 < "
      "0.05.\n");
}

void print_between(const GradientArguments& arguments) {
  const bool normal = arguments.scores == "normal";
  const auto length = [&](double alpha) {
    return normal ? theory::normal_optimum_length(alpha)
                  : theory::cosine_optimum_length(alpha, arguments.dim);
  };
  const auto [low, high] = std::minmax(arguments.between[0], arguments.between[1]);
  if (arguments.json) {
    ordered_json json = {{"scores", arguments.scores}};
    if (!normal) json["dim"] = arguments.dim;
    json["alpha"] = {low, high};
    json["n"] = {length(low), length(high)};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print(
      "alpha that maximises alpha (1 - sum p^2), {} scores{}: {} to {} for n from {:.0f} to "
      "{:.0f}\n",
      arguments.scores, normal ? "" : fmt::format(" in {} dimensions", arguments.dim), number(low),
      number(high), std::ceil(length(low)), std::floor(length(high)));
}

void run_gradient(const GradientArguments& arguments) {
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
  app->add_option("--dim", arguments->dim, "head dimension d")
      ->check(command::whole_number())
      ->capture_default_str();
  app->add_option("--lengths", arguments->lengths,
                  "lengths n, as 64,512 or 40:20000:40 or 64:65536:x2")
      ->capture_default_str();
  auto* dims = app->add_option("--dims", arguments->dims,
                               "fit c ln n to cosine scores in each of these dimensions");
  app->add_option("--between", arguments->between,
                  "find the lengths whose optimal alpha is between these two")
      ->expected(2)
      ->delimiter(',')
      ->excludes(dims);
  app->add_option("--rule", arguments->rules, "show the gradient mass of rows under these rules")
      ->excludes(dims);
  app->add_flag("--json", arguments->json, "print JSON");
  app->callback([arguments] { run_gradient(*arguments); });
}

}  // namespace isentrope::cli
