#include "report/extrapolation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/extrapolation_charts.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/result.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

std::string tokens(std::int64_t length) { return compact(static_cast<double>(length)); }

std::size_t seeds_of(const Result& result) {
  std::size_t seeds = 1;
  for (const RuleResult& rule : result.rules) seeds = std::max(seeds, rule.run_accuracy.size());
  return seeds;
}

// The rule with the highest accuracy at a length, other than one; null when none has a number.
const RuleResult* best_at(const Result& result, std::int64_t length, const RuleResult* other = nullptr) {
  const RuleResult* best = nullptr;
  for (const RuleResult& rule : result.rules) {
    if (&rule == other || !rule.accuracy.contains(length)) continue;
    if (best == nullptr || rule.accuracy.at(length) > best->accuracy.at(length)) best = &rule;
  }
  return best;
}

// Who is ahead at the longest length, and of whom that is worth saying: standard when it is there.
void summarise_accuracy(Text& text, const Result& result) {
  const std::int64_t longest = result.lengths.back();
  const RuleResult* leader = best_at(result, longest);
  if (leader == nullptr) {
    text.plain("No accuracy was measured at the longest length, " + tokens(longest) + " tokens. ");
    return;
  }
  const RuleResult* baseline = baseline_of(result);
  const bool useful = baseline != nullptr && baseline != leader && baseline->accuracy.contains(longest);
  const RuleResult* other = useful ? baseline : best_at(result, longest, leader);

  text.plain("At " + tokens(longest) + " tokens");
  if (result.train_length && *result.train_length < longest) {
    const double times = static_cast<double>(longest) / static_cast<double>(*result.train_length);
    text.plain(fmt::format(", {:.3g} times the length it was trained on,", times));
  }
  text.plain(" a model with ").code(leader->rule);
  text.plain(" fills in " + decimal(leader->accuracy.at(longest), 2) + " % of the masked tokens");
  if (other == nullptr) {
    text.plain(". ");
    return;
  }
  const double lead = leader->accuracy.at(longest) - other->accuracy.at(longest);
  text.plain(", one with ").code(other->rule).plain(" " + decimal(other->accuracy.at(longest), 2) + " %: ");
  text.strong(decimal(lead, 2) + " points apart").plain(". ");
  if (!result.train_length || *result.train_length == longest) return;
  const ByLength apart = difference(leader->accuracy, other->accuracy);
  if (const auto at = apart.find(*result.train_length); at != apart.end()) {
    text.plain("At the training length of " + tokens(at->first) + " the difference is " +
               signed_decimal(at->second, 2) + ". ");
  }
}

void summarise_entropy(Text& text, const Result& result) {
  const std::int64_t shortest = result.lengths.front(), longest = result.lengths.back();
  bool first = true;
  for (const RuleResult& rule : result.rules) {
    if (shortest == longest || !rule.entropy.contains(shortest) || !rule.entropy.contains(longest)) continue;
    if (first) text.plain(fmt::format("From {} to {} tokens the mean entropy of a row changes by ", tokens(shortest), tokens(longest)));
    text.plain((first ? "" : ", ") + signed_decimal(rule.entropy.at(longest) - rule.entropy.at(shortest), 2));
    text.plain(first ? " nats under " : " under ").code(rule.rule);
    first = false;
  }
  if (first) return;
  const double uniform = std::log(static_cast<double>(longest) / static_cast<double>(shortest));
  text.plain("; ").symbol("ln n").plain(" by " + signed_decimal(uniform, 2) + ".");
}

Text summary_of(const Result& result) {
  Text text;
  summarise_accuracy(text, result);
  summarise_entropy(text, result);
  return text;
}

TableRow accuracy_row(const Result& result, Text label, const ByLength& accuracy, const ByLength& spread,
                      const ByLength& best) {
  TableRow row{std::move(label), {}};
  for (const std::int64_t length : result.lengths) {
    const auto found = accuracy.find(length);
    if (found == accuracy.end()) {
      row.cells.emplace_back("–");
      continue;
    }
    Text cell;
    const std::string number = decimal(found->second, 2);
    const bool is_best = best.contains(length) && found->second == best.at(length);
    is_best ? cell.strong(number) : cell.plain(number);
    if (spread.contains(length)) cell.small("± " + decimal(spread.at(length), 2));
    row.cells.push_back(std::move(cell));
  }
  return row;
}

TableRow difference_row(const Result& result, Text label, const ByLength& a, const ByLength& b) {
  const ByLength apart = difference(a, b);
  TableRow row{std::move(label), {}};
  for (const std::int64_t length : result.lengths) {
    row.cells.emplace_back(apart.contains(length) ? signed_decimal(apart.at(length), 2) : "–");
  }
  return row;
}

// The highest accuracy at each length, where there is more than one to choose from.
ByLength best_of(const std::vector<const ByLength*>& rows) {
  ByLength best;
  if (rows.size() < 2) return best;
  for (const ByLength* row : rows) {
    for (const auto& [length, value] : *row) {
      const auto [at, inserted] = best.try_emplace(length, value);
      at->second = std::max(at->second, value);
    }
  }
  return best;
}

TableGroup our_accuracy(const Result& result) {
  TableGroup group{"This run", {}};
  std::vector<const ByLength*> rows;
  for (const RuleResult& rule : result.rules) rows.push_back(&rule.accuracy);
  const ByLength best = best_of(rows);
  for (const RuleResult& rule : result.rules) {
    group.rows.push_back(accuracy_row(result, Text().code(rule.rule), rule.accuracy, rule.accuracy_spread, best));
  }
  const RuleResult* baseline = baseline_of(result);
  for (const RuleResult& rule : result.rules) {
    if (baseline == nullptr || &rule == baseline) continue;
    const Text label = result.rules.size() == 2 ? Text("difference") : Text().code(rule.rule).plain(" − standard");
    group.rows.push_back(difference_row(result, label, rule.accuracy, baseline->accuracy));
  }
  return group;
}

TableGroup their_accuracy(const Result& result) {
  TableGroup group{Text("Theirs, for comparison: ").link("Su 2021", su2021::kUrl).plain(", a larger model on Chinese text"), {}};
  const ByLength best = best_of({&su2021::kStandard, &su2021::kEntropyInvariant});
  group.rows.push_back(accuracy_row(result, "Attention-O (standard)", su2021::kStandard, {}, best));
  group.rows.push_back(accuracy_row(result, "Attention-E (entropy invariant)", su2021::kEntropyInvariant, {}, best));
  group.rows.push_back(difference_row(result, "difference", su2021::kEntropyInvariant, su2021::kStandard));
  return group;
}

Table accuracy_table(const Result& result) {
  Table table;
  table.caption = "Accuracy in per cent at each test length; the best of each column in bold.";
  const std::size_t seeds = seeds_of(result);
  if (seeds > 1) table.caption.plain(fmt::format(" Means and spread (±) over {} seeds.", seeds));
  table.columns = {"length"};
  for (const std::int64_t length : result.lengths) table.columns.emplace_back(tokens(length));
  table.groups = {our_accuracy(result), their_accuracy(result)};
  return table;
}

Table seeds_table(const Result& result) {
  Table table;
  table.caption = "Accuracy in per cent, seed by seed.";
  table.columns = {"run"};
  for (const std::int64_t length : result.lengths) table.columns.emplace_back(tokens(length));
  for (const RuleResult& rule : result.rules) {
    TableGroup group{Text().code(rule.rule), {}};
    for (std::size_t i = 0; i < rule.run_accuracy.size(); ++i) {
      group.rows.push_back(accuracy_row(result, fmt::format("{}", i + 1), rule.run_accuracy[i], {}, {}));
    }
    if (!group.rows.empty()) table.groups.push_back(std::move(group));
  }
  return table;
}

Text value_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return compact(value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "–";
  std::string text;
  for (const json& each : value) {
    text += (text.empty() ? "" : ", ") + (each.is_string() ? each.get<std::string>() : each.dump());
  }
  return text;
}

TableGroup settings(Text heading, const json& object) {
  TableGroup group{std::move(heading), {}};
  for (const auto& [key, value] : object.items()) {
    std::string label = key;
    std::ranges::replace(label, '_', ' ');
    group.rows.push_back({label, {value_text(value)}});
  }
  return group;
}

Table settings_table(const Result& result) {
  TableGroup machine = settings("Machine", result.machine);
  for (const RuleResult& rule : result.rules) {
    if (!rule.seconds_per_step) continue;
    machine.rows.push_back({Text("seconds a step, ").code(rule.rule), {decimal(*rule.seconds_per_step, 3)}});
  }
  Table table;
  for (TableGroup& group : std::vector{settings("Model and training", result.config), settings("Corpus", result.corpus), machine}) {
    if (!group.rows.empty()) table.groups.push_back(std::move(group));
  }
  return table;
}

void add_charts(Page& page, const char* heading, const std::vector<LineChart>& charts) {
  if (charts.empty()) return;
  page.heading(heading);
  for (const LineChart& chart : charts) page.plot(line_plot(chart));
}

void add_reproduction(Page& page, const Result& result) {
  const Table table = settings_table(result);
  if (!table.groups.empty()) page.heading("Configuration").table(table);
  if (!result.command.empty()) page.heading("How to reproduce").code(result.command);
  std::string written = "Written by isentrope";
  if (!result.version.empty()) written += " " + result.version;
  if (!result.created.empty()) written += ", " + result.created;
  page.footer(written + ". This file is complete: it loads nothing from anywhere.");
}

}  // namespace

std::string extrapolation_report(const json& document) {
  const Result result = parse_result(document);
  Page page("Length extrapolation", summary_of(result));
  page.heading("Accuracy").table(accuracy_table(result));
  for (const LineChart& chart : accuracy_charts(result)) page.plot(line_plot(chart));
  add_charts(page, "What the rows do", row_charts(result));
  add_charts(page, "Training", training_charts(result));
  if (seeds_of(result) > 1) page.heading("Every seed").table(seeds_table(result));
  add_reproduction(page, result);
  return page.html();
}

}  // namespace isentrope::report
