// Tables of the study: grid and progress, leads by cell and pooled, accuracies, curves of gains.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "docs/generate/tables.h"
#include "tools/analysis/records.h"
#include "tools/analysis/study.h"
#include "tools/report/extrapolation_charts.h"
#include "tools/report/numbers.h"
#include "tools/report/study.h"
#include "tools/report/verdict_words.h"

namespace isentrope::docs {
namespace {

using analysis::Cell;
using analysis::Lead;
using analysis::PooledLead;
using analysis::RowName;
using analysis::Study;
using nlohmann::ordered_json;

// Ordered JSON keeps the cells in the order of the plan.
Study study_of(const std::filesystem::path& docs) {
  return analysis::read_study(ordered_json::parse(std::ifstream(docs / "results/study.json")));
}

std::string grid_table(const Study& study) {
  Rows rows = {{"cell", "options", "trainings done"}};
  for (const Cell& cell : study.cells) {
    rows.push_back({cell.name, "`" + cell.options + "`",
                    fmt::format("{} of {}", cell.records.size(), cell.planned)});
  }
  return report::progress_words(study) + "\n\n" + markdown_table(rows);
}

Rows heading_of(const Cell& cell, std::vector<std::string> first) {
  Rows rows = {std::move(first)};
  for (const nlohmann::json& length : cell.records.front().at("evaluation").at("lengths"))
    rows.front().push_back(fmt::format("n = {}", length.get<std::int64_t>()));
  return rows;
}

// Text if no two seeds can be compared yet.
constexpr const char* kNothingYet =
    "No two seeds of a cell are done yet: there is no lead to show.\n";

// A row of a cell: the leads of one model in one metric, length by length.
struct LeadRow {
  Lead first;
  std::map<std::int64_t, Lead> at;

  [[nodiscard]] std::string seeds() const { return std::to_string(first.seeds.pairs); }
  [[nodiscard]] std::string name() const { return "`" + report::row_name(first) + "`"; }
};

// Returns rows in the order of the leads. A single pair of seeds has no error and is left out.
std::vector<LeadRow> lead_rows(const std::vector<Lead>& leads, const std::string& metric) {
  std::vector<LeadRow> rows;
  for (const Lead& lead : leads) {
    if (lead.metric != metric || lead.seeds.pairs < 2) continue;
    const auto is_its = [&](const LeadRow& x) {
      return x.first.rule == lead.rule && x.first.kind == lead.kind;
    };
    auto row = std::ranges::find_if(rows, is_its);
    if (row == rows.end()) row = rows.insert(row, {lead, {}});
    row->at.emplace(lead.length, lead);
  }
  return rows;
}

std::string leads_table(const Study& study, const std::string& metric) {
  Rows rows;
  for (std::size_t i = 0; i < study.cells.size(); ++i) {
    for (const LeadRow& row : lead_rows(study.leads[i], metric)) {
      if (rows.empty()) rows = heading_of(study.cells[i], {"cell", "rule", "seeds"});
      rows.push_back({study.cells[i].name, row.name(), row.seeds()});
      for (const auto& [length, lead] : row.at) rows.back().push_back(report::lead_words(lead));
    }
  }
  return rows.empty() ? kNothingYet : markdown_table(rows);
}

// Table of pooled leads of one row in both metrics.
std::string pooled_table(const Study& study) {
  Rows rows;
  for (const char* metric : {"accuracy", "cross_entropy"}) {
    std::string last;
    for (const PooledLead& pooled : study.pooled) {
      if (pooled.lead.metric != metric) continue;
      if (rows.empty()) {
        rows = heading_of(study.cells.front(), {"rule", "in", "cells", "seeds"});
      }
      const std::string cells = fmt::format("{}", fmt::join(pooled.cells, ", "));
      const std::string name = "`" + report::row_name(pooled.lead) + "`";
      if (name + cells != last) {
        rows.push_back({name, metric == std::string("accuracy") ? "points" : "nats", cells,
                        std::to_string(pooled.lead.seeds.pairs)});
      }
      last = name + cells;
      rows.back().push_back(report::lead_words(pooled.lead));
    }
  }
  return rows.empty() ? kNothingYet : markdown_table(rows);
}

double best_gain(const report::GainCurves& curves, std::int64_t length) {
  const std::vector<double>& accuracy = curves.curve.at(length);
  return curves.gains[std::ranges::max_element(accuracy) - accuracy.begin()];
}

// Returns a cell's best gain by length, its range over seeds, and its lead over 1 in points.
std::vector<std::string> best_gains(const Cell& cell, const report::GainCurves& mean) {
  std::vector<report::GainCurves> of_seeds;
  for (const nlohmann::json& record : cell.records) {
    if (record.contains("gains")) of_seeds.push_back(report::cell_result({record}).gains);
  }
  std::vector<std::string> row = {cell.name, std::to_string(of_seeds.size())};
  const auto one = std::ranges::find(mean.gains, 1.0) - mean.gains.begin();
  for (const auto& [length, accuracy] : mean.curve) {
    std::set<double> best;
    for (const report::GainCurves& curves : of_seeds) best.insert(best_gain(curves, length));
    row.push_back(fmt::format(
        "{:.2f} ({:.2f} to {:.2f}), {}", best_gain(mean, length), *best.begin(), *best.rbegin(),
        report::signed_decimal(std::ranges::max(accuracy) - accuracy[one], 1)));
  }
  return row;
}

std::string best_gains_table(const Study& study) {
  const std::string rule = "entropy_invariant(base=64)";
  Rows rows;
  for (const Cell& cell : study.cells) {
    if (cell.records.empty()) continue;
    const report::GainCurves mean = report::cell_result(cell.records).gains;
    if (mean.gains.empty()) continue;
    if (rows.empty()) {
      rows = heading_of(cell, {"cell", "seeds"});
      rows.push_back({"`" + rule + "`", "–"});
      for (const auto& [length, gain] : mean.of_rules.at(rule))
        rows.back().push_back(fmt::format("{:.2f}", gain));
    }
    rows.push_back(best_gains(cell, mean));
  }
  return rows.empty() ? "No curve is measured yet.\n" : markdown_table(rows);
}

std::string numbers_table(const Study& study) {
  Rows rows;
  for (const Cell& cell : study.cells) {
    if (cell.records.empty()) continue;
    if (rows.empty()) rows = heading_of(cell, {"cell", "row", "seeds"});
    for (const nlohmann::json& row : analysis::rules_json(cell.records)) {
      rows.push_back({cell.name, "`" + report::row_name(row.at("rule"), row.at("kind")) + "`",
                      std::to_string(row.at("seeds").size())});
      for (const nlohmann::json& length : cell.records.front().at("evaluation").at("lengths")) {
        const std::string n = std::to_string(length.get<std::int64_t>());
        rows.back().push_back(fmt::format("{} %, {} nats, H {}, distance {}, far {} %",
                                          report::decimal(row.at("accuracy").at(n), 2),
                                          report::decimal(row.at("cross_entropy").at(n), 3),
                                          report::decimal(row.at("entropy").at(n), 2),
                                          report::decimal(row.at("distance").at(n), 1),
                                          report::decimal(row.at("share_beyond").at(n), 1)));
      }
    }
    rows.push_back({cell.name, "uniform attention", "–"});
    for (const auto& [n, entropy] : report::cell_result(cell.records).uniform_entropy())
      rows.back().push_back("H " + report::decimal(entropy, 2));
  }
  return rows.empty() ? "No training is done yet.\n" : markdown_table(rows);
}

std::map<std::filesystem::path, report::LineChart> gain_figures(const Study& study) {
  std::map<std::filesystem::path, report::LineChart> figures;
  for (const Cell& cell : study.cells) {
    if (cell.records.empty()) continue;
    report::LineChart chart = report::gain_chart(report::cell_result(cell.records));
    chart.title.plain(", ").plain(cell.name);
    if (!chart.empty()) figures["figures/gains-" + cell.name + ".svg"] = chart;
  }
  return figures;
}

// Leads of masked RoPE models trained with base 512, finished ones with 64, and hidden far keys.
report::LineChart pooled_chart(const Study& study) {
  report::LineChart chart;
  chart.title = "Lead over standard, RoPE";
  chart.x_label = "length n, tokens";
  chart.y_label = "points of accuracy";
  chart.x_axis = report::Axis::log2;
  chart.y_from_zero = true;
  const std::pair<RowName, const char*> shown[] = {
      {{"entropy_invariant(base=512)", "trained"}, "trained with base 512"},
      {{"entropy_invariant(base=64)", "rescaled"}, "standard, rescaled by base 64"},
      {{"standard", "near"}, "standard, near keys only"}};
  for (const auto& [row, name] : shown) {
    report::Series series{.name = name, .x = {}, .y = {}};
    for (const PooledLead& pooled : study.pooled) {
      const Lead& lead = pooled.lead;
      if (lead.metric != "accuracy" || RowName{lead.rule, lead.kind} != row ||
          !pooled.cells.front().starts_with("rope"))
        continue;
      series.x.push_back(static_cast<double>(lead.length));
      series.y.push_back(lead.seeds.mean);
      const double half = (lead.seeds.high - lead.seeds.low) / 2;
      series.spread.push_back(std::isfinite(half) ? half : 0);
    }
    chart.series.push_back(series);
  }
  for (const double length : chart.series.front().x) chart.x_ticks.push_back(length);
  return chart;
}

}  // namespace

std::map<std::string, std::string> study_tables(const std::filesystem::path& docs) {
  const Study study = study_of(docs);
  std::string figures;
  for (const auto& [path, chart] : gain_figures(study)) {
    figures += fmt::format("![{}]({})\n", path.stem().string(), path.string());
  }
  return {{"study-grid", grid_table(study)},
          {"study-pooled", pooled_table(study)},
          {"study-leads", leads_table(study, "accuracy")},
          {"study-leads-in-nats", leads_table(study, "cross_entropy")},
          {"study-numbers", numbers_table(study)},
          {"study-best-gains", best_gains_table(study)},
          {"study-gains", figures.empty() ? "No curve is measured yet.\n" : figures}};
}

std::map<std::filesystem::path, report::LineChart> study_figures(
    const std::filesystem::path& docs) {
  const Study study = study_of(docs);
  std::map<std::filesystem::path, report::LineChart> figures = gain_figures(study);
  figures["figures/rope-pooled.svg"] = pooled_chart(study);
  return figures;
}

}  // namespace isentrope::docs
