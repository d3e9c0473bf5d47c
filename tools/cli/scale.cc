// isentrope scale: the softmax scale of one or more rules, length by length.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "isentrope/config/scale_rule_json.h"
#include "isentrope/error.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "src/files/writing.h"
#include "tools/cli/commands.h"
#include "tools/cli/lengths.h"
#include "tools/cli/terminal.h"
#include "tools/command/arguments.h"
#include "tools/command/reading.h"
#include "tools/command/run.h"
#include "tools/report/law_charts.h"
#include "tools/report/pages.h"

namespace isentrope::cli {
namespace {

using nlohmann::ordered_json;
using report::Comparison;

struct ScaleArguments {
  std::optional<std::string> rule, config, report;
  std::string lengths = "16,64,256,1024,4096,16384,65536,262144";
  std::vector<std::string> compare;
  std::optional<std::int64_t> dim;
  std::int64_t head = 0;
  bool json = false, list = false;
};

// Returns which length n counts in each factor of a rule, and why; "" if it counts none.
std::string counted_by(const ScaleRule& rule) {
  std::string text;
  for (const ScaleRule::Term& term : rule.terms()) {
    const std::string counts = counted(*find_rule(term.name), term.form);
    if (!counts.empty()) text.append(text.empty() ? "" : "; ").append("length=").append(counts);
  }
  return text;
}

ordered_json json_of(const Comparison& comparison, const ScaleRule& rule) {
  ordered_json printed = {{"rule", rule.text()}}, values = ordered_json::array();
  if (const std::string counts = counted_by(rule); !counts.empty()) printed["counts"] = counts;
  const double standard = 1 / std::sqrt(static_cast<double>(comparison.dim));
  for (const std::int64_t n : comparison.lengths) {
    const double lambda = comparison.lambda(rule, n);
    values.push_back({{"n", n}, {"lambda", lambda}, {"factor", lambda / standard}});
  }
  printed["values"] = values;
  return printed;
}

ordered_json json_of(const ModelScale& model) {
  ordered_json printed = {{"known", model.known}, {"model_type", model.model_type}};
  if (model.known) {
    printed["layers"] = model.layers;
    printed["others"] = model.elsewhere.text();
  } else {
    printed["rule"] = nullptr;
  }
  printed["keys"] = model.keys;
  printed["notes"] = model.notes;
  return printed;
}

void print_as_json(const Comparison& comparison, const std::optional<ModelScale>& model) {
  ordered_json printed = json_of(comparison, comparison.rules.front());
  if (model) printed.update(json_of(*model));
  printed["dim"] = comparison.dim;
  for (std::size_t i = 1; i < comparison.rules.size(); ++i)
    printed["compare"].push_back(json_of(comparison, comparison.rules[i]));
  print_json(printed);
}

void print_text(const Comparison& comparison) {
  const std::vector<std::int64_t>& lengths = comparison.lengths;
  std::vector<Row> rows;
  std::vector<Curve> curves;
  for (const ScaleRule& rule : comparison.rules) curves.push_back({rule.text(), {}});
  for (const std::int64_t n : lengths) {
    Row& row = rows.emplace_back(Row{{"", "n", n}});
    for (std::size_t i = 0; i < curves.size(); ++i) {
      curves[i].y.push_back(comparison.lambda(comparison.rules[i], n));
      row.push_back({"", curves[i].name, curves[i].y.back()});
    }
  }
  fmt::print("softmax scale lambda, head dimension {}\n\n", comparison.dim);
  print_table(rows);
  fmt::print("\n");
  for (const ScaleRule& rule : comparison.rules) {
    if (const std::string counts = counted_by(rule); !counts.empty())
      fmt::print("{}: {}\n", rule.text(), counts);
  }
  if (lengths.size() > 1 && std::ranges::is_sorted(lengths))
    print_plot("lambda against n", {lengths.begin(), lengths.end()}, curves);
}

void print_catalogue(bool json) {
  if (json) {
    ordered_json rules = ordered_json::array();
    for (const RuleInfo& rule : rule_catalogue())
      rules.push_back({{"name", rule.name},
                       {"signature", signature(rule)},
                       {"formula", rule.formula},
                       {"source", rule.source},
                       {"counts", rule.counts}});
    return print_json({{"rules", rules}});
  }
  for (const RuleInfo& rule : rule_catalogue()) {
    fmt::print("{}\n    lambda = {}\n    {}\n", signature(rule), rule.formula, rule.source);
    if (!rule.counts.empty()) fmt::print("    length={}\n", rule.counts);
  }
  fmt::print(
      "\nEvery rule also takes length=visible|position|total|N, n_min, n_max, offset,\n"
      "where=pre_cap|post_cap and scale_bias=true|false; [x,y] is a number for each head; * "
      "multiplies rules.\n");
}

// Reports an unknown family, which may scale as no key names: keys of other families, but no rule.
void print_unknown(const ModelScale& model, bool json) {
  if (json) {
    print_json(json_of(model));
  } else {
    fmt::print("rule    not known\nfamily  {}\n",
               model.model_type.empty() ? "no model_type" : model.model_type);
    for (const std::string& key : model.keys) fmt::print("key     {}\n", key);
  }
  command::complain(
      "isentrope scale",
      fmt::format("[scale] model_type must be a family whose code was read; got {}. Read the scale "
                  "of q.k in the model's code and pass it as RULE, without --config",
                  model.model_type.empty() ? "none" : "\"" + model.model_type + "\""));
}

void print_model(const ModelScale& model) {
  fmt::print("family  {}\nrule    {}\nlayers  {}\n", model.model_type, model.rule.text(),
             model.layers);
  if (model.elsewhere != model.rule) fmt::print("others  {}\n", model.elsewhere.text());
  for (const std::string& key : model.keys) fmt::print("key     {}\n", key);
  for (const std::string& note : model.notes) fmt::print("note    {}\n", note);
  fmt::print("\n");
}

// Returns the rules to print, the model's first, with its head dimension unless one was given.
std::vector<ScaleRule> rules_of(const ScaleArguments& arguments,
                                const std::optional<ModelScale>& model) {
  std::vector<ScaleRule> rules;
  if (model) rules.push_back(model->rule);
  if (arguments.rule) rules.push_back(ScaleRule::parse(*arguments.rule));
  for (const std::string& text : arguments.compare) rules.push_back(ScaleRule::parse(text));
  return rules;
}

constexpr int kNotKnown = 1;  // exit status for an unknown family

// Prints only after everything that may fail. Returns the exit status.
int run_scale(ScaleArguments arguments) {
  if (arguments.list) {
    print_catalogue(arguments.json);
    return 0;
  }
  if (!arguments.rule && !arguments.config) {
    throw Error("a RULE or --config must be given (--list shows the rules)");
  }
  std::optional<ModelScale> model;
  if (arguments.config) model = scale_of_config(command::read_file(*arguments.config));
  if (model && !model->known) {
    print_unknown(*model, arguments.json);
    return kNotKnown;
  }
  if (!arguments.dim) arguments.dim = model && model->dim >= 2 ? model->dim : 64;
  const std::int64_t dim = *arguments.dim;
  if (dim < 2 || dim > 10000000) {
    throw Error(fmt::format("[scale] dim must be at least 2 and at most 1e+07; got dim = {}", dim));
  }
  const Comparison comparison{rules_of(arguments, model), parse_lengths(arguments.lengths), dim,
                              arguments.head};
  for (const ScaleRule& rule : comparison.rules)
    (void)comparison.lambda(rule, comparison.lengths.front());
  if (arguments.report) command::write_file(*arguments.report, report::scale_page(comparison));
  if (arguments.json) {
    print_as_json(comparison, model);
    return 0;
  }
  if (model) print_model(*model);
  print_text(comparison);
  if (arguments.report) fmt::print("\n{}\n", *arguments.report);
  return 0;
}

}  // namespace

int scale_command(int argc, char** argv) {
  CLI::App app(
      "Shows the softmax scale of a rule by length: isentrope scale 'logn(4096)' --dim 128",
      "isentrope scale");
  ScaleArguments arguments;
  app.add_option("RULE", arguments.rule,
                 "a rule, such as entropy_invariant(base=512); --list shows all");
  app.add_option("--compare", arguments.compare, "rules to compare it with");
  app.add_option("--dim", arguments.dim, "head dimension d (64)")->check(command::whole_number());
  app.add_option("--head", arguments.head, "head, for rules with a number for each head (0)")
      ->check(command::whole_number(0, std::numeric_limits<std::int64_t>::max()));
  add_lengths(app, arguments.lengths);
  app.add_option(
      "--config", arguments.config,
      "show the rule that this config.json of a Hugging Face model uses, with RULE beside it; exit "
      "status 1 if the family is not known");
  app.add_option("--report", arguments.report, "write a page with plots to this HTML file");
  auto* list = app.add_flag("--list", arguments.list, "list all rules");
  for (CLI::Option* other : app.get_options())
    if (other != list && other != app.get_help_ptr()) list->excludes(other);
  app.add_flag("--json", arguments.json, "print JSON");
  int status = 0;
  app.callback([&] { status = run_scale(arguments); });
  const int failure = command::run(app, argc, argv);
  return failure == 0 ? status : failure;
}

}  // namespace isentrope::cli
