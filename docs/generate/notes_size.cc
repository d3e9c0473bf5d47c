// The note's experiment by model size: tables and a figure of the note's numbers, a model of its
// size and the study's small models. Until it is complete, the pilot's model has the note's size.

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "tools/analysis/study.h"
#include "tools/report/extrapolation_charts.h"
#include "tools/report/numbers.h"
#include "tools/report/study.h"

namespace isentrope::docs {
namespace {

using analysis::Cell;
using analysis::Lead;
using analysis::RowName;
using analysis::Study;
using report::ByLength;

const RowName kStandardRow{"standard", "trained"},
    kTrainedRow{"entropy_invariant(base=512)", "trained"},
    kRescaledRow{"entropy_invariant(base=64)", "rescaled"}, kNearRow{"standard", "near"};

Study study_in(const std::filesystem::path& file) {
  return analysis::read_study(nlohmann::ordered_json::parse(std::ifstream(file)));
}

struct NotesSize {
  Study study;
  std::string name;
};

NotesSize notes_size_of(const std::filesystem::path& docs) {
  Study run = study_in(docs / "results/notes-size.json");
  if (run.complete()) return {std::move(run), "note's size, 5 seeds"};
  return {study_in(docs / "results/note-pilot.json"), "note's size, pilot of one seed"};
}

// Returns the mean over the seeds; empty without that row.
ByLength accuracy_of(const Cell& cell, const RowName& row) {
  for (const report::RuleResult& rule : report::cell_result(cell.records).rules)
    if (RowName{rule.rule, rule.kind} == row) return rule.mean.accuracy;
  return {};
}

// Returns the masked RoPE cells that the study averages.
std::vector<std::string> pooled_cells(const Study& small) {
  for (const analysis::PooledLead& pooled : small.pooled) {
    if (RowName{pooled.lead.rule, pooled.lead.kind} == kTrainedRow &&
        pooled.cells.front().starts_with("rope"))
      return pooled.cells;
  }
  return {};
}

ByLength pooled_accuracy(const Study& small, const RowName& row) {
  const std::vector<std::string> names = pooled_cells(small);
  ByLength mean;
  for (const std::string& name : names) {
    const auto cell = std::ranges::find(small.cells, name, &Cell::name);
    for (const auto& [length, accuracy] : accuracy_of(*cell, row))
      mean[length] += accuracy / static_cast<double>(names.size());
  }
  return mean;
}

std::vector<std::string> accuracy_row(const std::string& model, const std::string& scale,
                                      const ByLength& accuracy) {
  std::vector<std::string> row = {model, scale};
  for (const auto& [length, value] : accuracy) row.push_back(report::decimal(value, 1));
  return row;
}

std::vector<std::string> lead_row(const std::string& model, const std::string& what,
                                  const std::vector<Lead>& leads) {
  std::vector<std::string> row = {model, what};
  for (const Lead& lead : leads) {
    row.push_back(lead.seeds.undecided.empty()
                      ? with_interval(lead.seeds.mean, lead.seeds.low, lead.seeds.high, 1)
                      : report::signed_decimal(lead.seeds.mean, 1));
  }
  return row;
}

std::vector<Lead> leads_named(const std::vector<Lead>& all, const RowName& row) {
  std::vector<Lead> found;
  for (const Lead& lead : all)
    if (lead.metric == "accuracy" && RowName{lead.rule, lead.kind} == row) found.push_back(lead);
  return found;
}

std::vector<Lead> pooled_named(const Study& small, const RowName& row) {
  std::vector<Lead> all;
  for (const analysis::PooledLead& pooled : small.pooled)
    if (pooled.cells == pooled_cells(small)) all.push_back(pooled.lead);
  return leads_named(all, row);
}

std::string small_name(const Study& small) {
  return fmt::format("small, {} cells", pooled_cells(small).size());
}

std::string accuracy_table(const NotesSize& large, const Study& small) {
  const Cell& cell = large.study.cells.front();
  Rows rows = {
      {"model", "scale", "64", "128", "256", "512", "1024"},
      accuracy_row("the note's", "1/sqrt(d)", report::su2021::kStandard),
      accuracy_row("the note's", "log_512(n)/sqrt(d)", report::su2021::kEntropyInvariant),
      accuracy_row(large.name, "1/sqrt(d)", accuracy_of(cell, kStandardRow)),
      accuracy_row(large.name, "log_512(n)/sqrt(d)", accuracy_of(cell, kTrainedRow)),
      accuracy_row(large.name, "1/sqrt(d), then times log_64(n)", accuracy_of(cell, kRescaledRow)),
      accuracy_row(small_name(small), "1/sqrt(d)", pooled_accuracy(small, kStandardRow)),
      accuracy_row(small_name(small), "log_512(n)/sqrt(d)", pooled_accuracy(small, kTrainedRow))};
  return markdown_table(rows);
}

std::string gain_table(const NotesSize& large, const Study& small) {
  const std::vector<Lead>& leads = large.study.leads.front();
  Rows rows = {{"model", "what it gains over 1/sqrt(d)", "64", "128", "256", "512", "1024"},
               {"the note's", "trained with log_512 n"}};
  for (const auto& [length, value] : report::su2021::kStandard)
    rows.back().push_back(
        report::signed_decimal(report::su2021::kEntropyInvariant.at(length) - value, 1));
  const std::pair<RowName, const char*> shown[] = {{kTrainedRow, "trained with log_512 n"},
                                                   {kRescaledRow, "rescaled by log_64 n"},
                                                   {kNearRow, "near keys only"}};
  for (const auto& [row, what] : shown) {
    if (const std::vector<Lead> large_leads = leads_named(leads, row); !large_leads.empty())
      rows.push_back(lead_row(large.name, what, large_leads));
    rows.push_back(lead_row(small_name(small), what, pooled_named(small, row)));
  }
  return markdown_table(rows);
}

using LayersByLength = std::map<std::int64_t, std::vector<double>>;

// Entropy of each layer at each length, mean over the seeds; empty without that row.
LayersByLength layer_entropy(const Cell& cell, const RowName& name) {
  LayersByLength found;
  std::vector<const nlohmann::json*> seeds;
  for (const nlohmann::json& record : cell.records)
    for (const nlohmann::json& row : record.at("rows"))
      if (RowName{row.at("rule"), row.at("kind")} == name) seeds.push_back(&row);
  if (seeds.empty()) return found;
  const auto lengths =
      cell.records.front().at("evaluation").at("lengths").get<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<double>& sums = found[lengths[i]];
    for (const nlohmann::json* row : seeds) {
      const auto layers = row->at("entropy_by_layer").at(i).get<std::vector<double>>();
      sums.resize(layers.size());
      for (std::size_t layer = 0; layer < layers.size(); ++layer)
        sums[layer] += layers[layer] / static_cast<double>(seeds.size());
    }
  }
  return found;
}

report::Series series_of(const std::string& name, int colour, bool standard,
                         const ByLength& accuracy) {
  report::Series series{.name = name, .x = {}, .y = {}, .reference = standard, .colour = colour};
  for (const auto& [length, value] : accuracy) {
    series.x.push_back(static_cast<double>(length));
    series.y.push_back(value);
  }
  return series;
}

}  // namespace

std::string notes_size_tables(const std::filesystem::path& docs) {
  const NotesSize large = notes_size_of(docs);
  const Study small = study_in(docs / "results/study.json");
  return "Accuracy in percent, on texts that differ from row to row:\n\n" +
         accuracy_table(large, small) + "\nGains in points of accuracy:\n\n" +
         gain_table(large, small);
}

std::string notes_entropy_table(const std::filesystem::path& docs) {
  const NotesSize large = notes_size_of(docs);
  const std::pair<RowName, const char*> shown[] = {
      {kStandardRow, "1/sqrt(d)"},
      {kTrainedRow, "log_512(n)/sqrt(d)"},
      {kRescaledRow, "1/sqrt(d), then times log_64(n)"}};
  Rows rows = {{"scale", "n"}};
  for (const auto& [row, scale] : shown) {
    for (const auto& [length, layers] : layer_entropy(large.study.cells.front(), row)) {
      rows.push_back({scale, std::to_string(length)});
      for (const double entropy : layers) rows.back().push_back(report::decimal(entropy, 2));
      rows.back().push_back(report::decimal(mean(layers), 2));
    }
  }
  for (std::size_t layer = 1; layer + 3 <= rows.back().size(); ++layer)
    rows.front().push_back(fmt::format("layer {}", layer));
  rows.front().emplace_back("mean");
  return fmt::format("{}, nats:\n\n", large.name) + markdown_table(rows);
}

report::LineChart notes_size_chart(const std::filesystem::path& docs) {
  const NotesSize large = notes_size_of(docs);
  const Study small = study_in(docs / "results/study.json");
  const Cell& cell = large.study.cells.front();
  report::LineChart chart = report::chart_named("accuracy");
  chart.title = "Accuracy beyond the trained length of 64; dotted: the standard scale";
  const auto add = [&](const std::string& model, int colour, const ByLength& standard,
                       const ByLength& rule) {
    chart.series.push_back(series_of(model + ", trained with log_512 n", colour, false, rule));
    chart.series.push_back(series_of(model + ", standard scale", colour, true, standard));
  };
  add("The note's model", 0, report::su2021::kStandard, report::su2021::kEntropyInvariant);
  add("A model of the " + large.name, 1, accuracy_of(cell, kStandardRow),
      accuracy_of(cell, kTrainedRow));
  add("Small models, mean of five", 2, pooled_accuracy(small, kStandardRow),
      pooled_accuracy(small, kTrainedRow));
  chart.y_from_zero = true;
  chart.x_ticks = chart.series.front().x;
  return chart;
}

}  // namespace isentrope::docs
