// Page of isentrope extrapolate.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tools/report/extrapolation_charts.h"
#include "tools/report/pages.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

std::string tokens(std::int64_t length) { return compact(static_cast<double>(length)); }

Table by_length(const Result& result, Text caption) {
  Table table{std::move(caption), {"length"}, {}};
  for (const std::int64_t length : result.lengths) table.columns.emplace_back(tokens(length));
  return table;
}

// Adds a group, unless it has no rows.
void add_group(Table& table, TableGroup group) {
  if (!group.rows.empty()) table.groups.push_back(std::move(group));
}

std::size_t seeds_of(const Result& result) {
  std::size_t seeds = 1;
  for (const RuleResult& rule : result.rules) seeds = std::max(seeds, rule.seeds.size());
  return seeds;
}

void summarise_entropy(Text& text, const Result& result) {
  const std::int64_t shortest = result.lengths.front(), longest = result.lengths.back();
  const auto growth = [&](const ByLength& entropy) {
    return signed_decimal(entropy.at(longest) - entropy.at(shortest), 2);
  };
  bool first = true;
  for (const RuleResult& rule : result.rules) {
    const ByLength& entropy = rule.mean.at("entropy");
    if (shortest == longest || !entropy.contains(shortest) || !entropy.contains(longest)) continue;
    if (first) {
      text.plain("From " + tokens(shortest) + " to " + tokens(longest) +
                 " tokens the mean entropy of a row changes by " + growth(entropy) +
                 " nats under ");
    } else {
      text.plain(", " + growth(entropy) + " under ");
    }
    text.code(rule.name);
    first = false;
  }
  if (!first)
    text.plain(", and that of uniform attention by " + growth(result.uniform_entropy()) + ".");
}

Text summary_of(const Result& result) {
  Text verdicts, entropy;
  for (const std::string& sentence : verdict_sentences(result.leads))
    verdicts.strong(sentence).plain(" ");
  summarise_entropy(entropy, result);
  const char* name = verdicts.html().empty() ? "no lead" : "judged run";
  return Text::markup(verdicts.html() + prose_named(name).html() + entropy.html());
}

TableRow accuracy_row(const Result& result, Text label, const ByLength& accuracy,
                      const ByLength& spread, const ByLength& best) {
  TableRow row{std::move(label), {}};
  for (const std::int64_t length : result.lengths) {
    Text& cell = row.cells.emplace_back();
    const auto found = accuracy.find(length);
    const std::string number = found == accuracy.end() ? "–" : decimal(found->second, 2);
    const bool is_best =
        found != accuracy.end() && best.contains(length) && found->second == best.at(length);
    is_best ? cell.strong(number) : cell.plain(number);
    if (found != accuracy.end() && spread.contains(length))
      cell.small("± " + decimal(spread.at(length), 2));
  }
  return row;
}

// Returns the highest accuracy at each length; empty for a single row.
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
  for (const RuleResult& rule : result.rules) rows.push_back(&rule.mean.at("accuracy"));
  const ByLength best = best_of(rows);
  for (const RuleResult& rule : result.rules) {
    group.rows.push_back(accuracy_row(result, Text().code(rule.name), rule.mean.at("accuracy"),
                                      rule.spread.at("accuracy"), best));
  }
  return group;
}

// Results of the experiment that this one repeats at a smaller size: masked language models trained
// at 64 tokens.
TableGroup their_accuracy(const Result& result) {
  const ByLength standard = {{64, 43.27}, {128, 36.53}, {256, 23.02}, {512, 15.12}, {1024, 11.54}},
                 invariant = {{64, 43.11}, {128, 41.17}, {256, 34.04}, {512, 20.15}, {1024, 13.58}},
                 best = best_of({&standard, &invariant});
  return {Text("Not of this run: ")
              .link("Su 2021", "https://kexue.fm/archives/8823")
              .plain(", one larger RoFormer for each row, on Chinese text"),
          {accuracy_row(result, "Attention-O (standard)", standard, {}, best),
           accuracy_row(result, "Attention-E (entropy invariant)", invariant, {}, best)}};
}

Table accuracy_table(const Result& result) {
  const std::size_t seeds = seeds_of(result);
  const std::string means =
      seeds > 1 ? prose_named("means", {{"seeds", std::to_string(seeds)}}).html() : "";
  Table table = by_length(result, prose_named("best", {{"means", means}}));
  table.groups = {our_accuracy(result), their_accuracy(result)};
  return table;
}

// Table of leads by length, as "+1.0 [0.2, 1.8] helps".
Table leads_table(const Result& result) {
  Table table = by_length(result, prose_named("leads"));
  for (const auto& [metric, heading] :
       {std::pair{"accuracy", "Accuracy, points"}, {"cross_entropy", "Cross-entropy, nats"}}) {
    TableGroup group{heading, {}};
    for (const RuleResult& rule : result.rules) {
      std::map<std::int64_t, Text> cells;
      for (const analysis::Lead& lead : result.leads) {
        if (lead.metric == metric && lead.rule == rule.rule && lead.kind == rule.kind)
          cells[lead.length] = Text(lead_numbers(lead)).small(name_of(lead.verdict));
      }
      if (cells.empty()) continue;
      TableRow& row = group.rows.emplace_back(Text().code(rule.name));
      for (const std::int64_t length : result.lengths)
        row.cells.push_back(cells.contains(length) ? cells.at(length) : Text("–"));
    }
    add_group(table, std::move(group));
  }
  return table;
}

Table seeds_table(const Result& result) {
  Table table = by_length(result, prose_named("every seed"));
  for (const RuleResult& rule : result.rules) {
    TableGroup group{Text().code(rule.name), {}};
    for (std::size_t i = 0; i < rule.seeds.size(); ++i) {
      const SeedResult& seed = rule.seeds[i];
      const std::string label =
          seed.seed ? fmt::format("seed {}", *seed.seed) : fmt::format("run {}", i + 1);
      group.rows.push_back(accuracy_row(result, label, seed.measures.at("accuracy"), {}, {}));
    }
    add_group(table, std::move(group));
  }
  return table;
}

// Returns a value as text; files appear as their path.
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
  add_group(table, settings("Model and training", result.config));
  add_group(table, settings("Corpus", result.corpus));
  add_group(table, std::move(machine));
  return table;
}

using Heading = Page& (Page::*)(const Text&);

void add_charts(Page& page, Heading heading, const char* text,
                const std::vector<LineChart>& charts) {
  if (charts.empty()) return;
  (page.*heading)(text);
  for (const LineChart& chart : charts) page.plot(line_plot(chart));
}

void add_reproduction(Page& page, const Result& result) {
  const Table table = settings_table(result);
  if (!table.groups.empty()) page.heading("Configuration").table(table);
  if (!result.command.empty()) page.heading("How to reproduce").code(result.command);
  page.footer(prose_named("written",
                          {{"version", result.version.empty() ? "" : " " + escape(result.version)},
                           {"date", result.date.empty() ? "" : ", " + escape(result.date)}}));
}

}  // namespace

void add_findings(Page& page, const Result& result, bool of_a_cell) {
  const Heading heading = of_a_cell ? &Page::subheading : &Page::heading;
  (page.*heading)("Accuracy").table(accuracy_table(result));
  if (const Table leads = leads_table(result); !leads.groups.empty())
    (page.*heading)("Leads").table(leads);
  const Charts charts = charts_of(result);
  for (const LineChart& chart : charts.accuracy) page.plot(line_plot(chart));
  add_charts(page, heading, "Why", charts.why);
  add_charts(page, heading, "Training", charts.training);
}

std::string extrapolation_report(const json& document) {
  const Result result = parse_result(document);
  Page page("Length extrapolation", summary_of(result));
  add_findings(page, result, /*of_a_cell=*/false);
  if (seeds_of(result) > 1) page.heading("Every seed").table(seeds_table(result));
  add_reproduction(page, result);
  return page.html();
}

}  // namespace isentrope::report
