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
  for (const RuleResult& rule : result.rules) seeds = std::max(seeds, rule.seeds.size());
  return seeds;
}

// The rule with the highest accuracy at a length, other than one; null when none has a number.
const RuleResult* best_at(const Result& result, std::int64_t length,
                          const RuleResult* other = nullptr) {
  const RuleResult* best = nullptr;
  for (const RuleResult& rule : result.rules) {
    if (&rule == other || !rule.mean.accuracy.contains(length)) continue;
    const double accuracy = rule.mean.accuracy.at(length);
    if (best == nullptr || accuracy > best->mean.accuracy.at(length)) best = &rule;
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
  const bool useful =
      baseline != nullptr && baseline != leader && baseline->mean.accuracy.contains(longest);
  const RuleResult* other = useful ? baseline : best_at(result, longest, leader);

  text.plain("At " + tokens(longest) + " tokens");
  if (result.train_length && *result.train_length < longest) {
    const double times = static_cast<double>(longest) / static_cast<double>(*result.train_length);
    text.plain(fmt::format(", {:.3g} times the length it was trained on,", times));
  }
  text.plain(" a model with ").code(leader->rule);
  text.plain(" fills in " + decimal(leader->mean.accuracy.at(longest), 2) +
             " % of the masked tokens");
  if (other == nullptr) {
    text.plain(". ");
    return;
  }
  const double lead = leader->mean.accuracy.at(longest) - other->mean.accuracy.at(longest);
  text.plain(", one with ")
      .code(other->rule)
      .plain(" " + decimal(other->mean.accuracy.at(longest), 2) + " %: a lead of ");
  text.strong(decimal(lead, 2) + " points").plain(". ");
  if (!result.train_length || *result.train_length == longest) return;
  const ByLength apart = difference(leader->mean.accuracy, other->mean.accuracy);
  if (const auto at = apart.find(*result.train_length); at != apart.end()) {
    text.plain("At the training length of " + tokens(at->first) + " the difference is " +
               signed_decimal(at->second, 2) + ". ");
  }
}

void summarise_training(Text& text, const Result& result) {
  for (const RuleResult& rule : result.rules) {
    if (rule.trained_as.empty()) continue;
    text.code(rule.rule)
        .plain(" is ")
        .code(rule.trained_as)
        .plain(
            " at the training length, so training makes one model for both: what differs elsewhere "
            "is the rule's doing. ");
  }
}

void summarise_entropy(Text& text, const Result& result) {
  const std::int64_t shortest = result.lengths.front(), longest = result.lengths.back();
  ByLength uniform;
  for (const std::int64_t n : {shortest, longest}) uniform[n] = std::log(static_cast<double>(n));
  const auto growth = [&](const ByLength& entropy) {
    return signed_decimal(entropy.at(longest) - entropy.at(shortest), 2);
  };
  bool first = true;
  for (const RuleResult& rule : result.rules) {
    const ByLength& entropy = rule.mean.entropy;
    if (shortest == longest || !entropy.contains(shortest) || !entropy.contains(longest)) continue;
    if (first) {
      text.plain("From " + tokens(shortest) + " to " + tokens(longest) +
                 " tokens the mean entropy of a row changes by " + growth(entropy) +
                 " nats under ");
    } else {
      text.plain(", " + growth(entropy) + " under ");
    }
    text.code(rule.rule);
    first = false;
  }
  if (!first) text.plain(", and ").symbol("ln n").plain(" itself by " + growth(uniform) + ".");
}

Text summary_of(const Result& result) {
  Text text;
  summarise_accuracy(text, result);
  summarise_training(text, result);
  summarise_entropy(text, result);
  return text;
}

TableRow accuracy_row(const Result& result, Text label, const ByLength& accuracy,
                      const ByLength& spread, const ByLength& best) {
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
  for (const RuleResult& rule : result.rules) rows.push_back(&rule.mean.accuracy);
  const ByLength best = best_of(rows);
  for (const RuleResult& rule : result.rules) {
    group.rows.push_back(accuracy_row(result, Text().code(rule.rule), rule.mean.accuracy,
                                      rule.spread.accuracy, best));
  }
  const RuleResult* baseline = baseline_of(result);
  for (const RuleResult& rule : result.rules) {
    if (baseline == nullptr || &rule == baseline) continue;
    const Text label =
        result.rules.size() == 2 ? Text("difference") : Text().code(rule.rule).plain(" − standard");
    group.rows.push_back(
        difference_row(result, label, rule.mean.accuracy, baseline->mean.accuracy));
  }
  return group;
}

TableGroup their_accuracy(const Result& result) {
  TableGroup group{Text("Theirs, for comparison: ")
                       .link("Su 2021", su2021::kUrl)
                       .plain(", a larger model on Chinese text"),
                   {}};
  const ByLength best = best_of({&su2021::kStandard, &su2021::kEntropyInvariant});
  group.rows.push_back(accuracy_row(result, "Attention-O (standard)", su2021::kStandard, {}, best));
  group.rows.push_back(
      accuracy_row(result, "Attention-E (entropy invariant)", su2021::kEntropyInvariant, {}, best));
  group.rows.push_back(
      difference_row(result, "difference", su2021::kEntropyInvariant, su2021::kStandard));
  return group;
}

Table accuracy_table(const Result& result) {
  Table table;
  table.caption = "Accuracy in per cent at each test length; the best of each column in bold.";
  const std::size_t seeds = seeds_of(result);
  if (seeds > 1)
    table.caption.plain(fmt::format(" Means over {} seeds; ± is their standard deviation.", seeds));
  table.columns = {"length"};
  for (const std::int64_t length : result.lengths) table.columns.emplace_back(tokens(length));
  table.groups = {our_accuracy(result), their_accuracy(result)};
  return table;
}

Table seeds_table(const Result& result) {
  Table table;
  table.caption = "Accuracy in per cent, seed by seed.";
  table.columns = {"length"};
  for (const std::int64_t length : result.lengths) table.columns.emplace_back(tokens(length));
  for (const RuleResult& rule : result.rules) {
    TableGroup group{Text().code(rule.rule), {}};
    for (std::size_t i = 0; i < rule.seeds.size(); ++i) {
      const SeedResult& seed = rule.seeds[i];
      const std::string label =
          seed.seed ? fmt::format("seed {}", *seed.seed) : fmt::format("run {}", i + 1);
      group.rows.push_back(accuracy_row(result, label, seed.measures.accuracy, {}, {}));
    }
    if (!group.rows.empty()) table.groups.push_back(std::move(group));
  }
  return table;
}

// A file is told by its path.
std::string value_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return compact(value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "–";
  if (value.is_object()) return value.contains("path") ? value_text(value["path"]) : value.dump();
  std::string text;
  for (const json& each : value) text += (text.empty() ? "" : ", ") + value_text(each);
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
    machine.rows.push_back(
        {Text("seconds a step, ").code(rule.rule), {decimal(*rule.seconds_per_step, 3)}});
  }
  Table table;
  for (TableGroup& group : std::vector{settings("Model and training", result.config),
                                       settings("Corpus", result.corpus), machine}) {
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
  if (!result.date.empty()) written += ", " + result.date;
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
