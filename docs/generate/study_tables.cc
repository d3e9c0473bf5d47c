// What the laboratory's study found: the grid with what of it is done, the leads with their errors,
// the numbers they come from, and the curves of constant gains.

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "docs/generate/tables.h"
#include "report/extrapolation_charts.h"
#include "report/leads.h"
#include "report/numbers.h"
#include "report/records.h"
#include "report/study.h"

namespace isentrope::docs {
namespace {

using nlohmann::ordered_json;
using report::Lead;

struct Cell {
  std::string name, options;
  std::int64_t planned = 0;
  std::vector<nlohmann::json> records;
};

std::vector<Cell> cells_of(const std::filesystem::path& docs) {
  // Ordered: the cells stand in the order of the plan.
  const ordered_json study = ordered_json::parse(std::ifstream(docs / "results/study.json"));
  std::vector<Cell> cells;
  for (const auto& [name, cell] : study.at("cells").items()) {
    cells.push_back({name, cell.at("options"), cell.at("planned"), {}});
    for (const ordered_json& record : cell.at("records")) cells.back().records.push_back(record);
  }
  return cells;
}

std::string progress(const std::vector<Cell>& cells) {
  std::size_t done = 0;
  std::int64_t planned = 0;
  for (const Cell& cell : cells) {
    done += cell.records.size();
    planned += cell.planned;
  }
  return fmt::format("{} of {} trainings are done.\n", done, planned);
}

std::string grid_table(const std::vector<Cell>& cells) {
  Rows rows = {{"cell", "options", "trainings done"}};
  for (const Cell& cell : cells) {
    rows.push_back({cell.name, "`" + cell.options + "`",
                    fmt::format("{} of {}", cell.records.size(), cell.planned)});
  }
  return progress(cells) + "\n" + markdown_table(rows);
}

Rows heading_of(const Cell& cell, std::vector<std::string> first) {
  Rows rows = {std::move(first)};
  for (const nlohmann::json& length : cell.records.front().at("evaluation").at("lengths"))
    rows.front().push_back(fmt::format("n = {}", length.get<std::int64_t>()));
  return rows;
}

// Where no two seeds can be compared there is nothing to say yet.
constexpr const char* kNothingYet =
    "No two seeds of a cell are done yet: there is no lead to show.\n";

// A row of a cell: what one model leads by in one metric, length by length.
struct LeadRow {
  std::string rule, kind;
  std::map<std::int64_t, Lead> at;

  [[nodiscard]] std::string seeds() const { return std::to_string(at.begin()->second.seeds); }
};

// In the order of the leads. One pair of seeds has no error, and is left out.
std::vector<LeadRow> lead_rows(const Cell& cell, const std::string& metric) {
  std::vector<LeadRow> rows;
  if (cell.records.empty()) return rows;
  for (const Lead& lead : report::leads_of(report::rules_json(cell.records))) {
    if (lead.metric != metric || lead.seeds < 2) continue;
    const auto is_its = [&](const LeadRow& x) {
      return x.rule == lead.rule && x.kind == lead.kind;
    };
    auto row = std::ranges::find_if(rows, is_its);
    if (row == rows.end()) row = rows.insert(row, {lead.rule, lead.kind, {}});
    row->at.emplace(lead.length, lead);
  }
  return rows;
}

std::string in_words(const Lead& lead) {
  const int digits = lead.metric == "accuracy" ? 1 : 3;
  return fmt::format("{} ± {} {}", report::signed_decimal(lead.lead.mean, digits),
                     report::decimal(lead.lead.se, digits), report::name_of(lead.lead.verdict));
}

std::string leads_table(const std::vector<Cell>& cells, const std::string& metric) {
  Rows rows;
  for (const Cell& cell : cells) {
    for (const LeadRow& row : lead_rows(cell, metric)) {
      if (rows.empty()) rows = heading_of(cell, {"cell", "rule", "seeds"});
      rows.push_back({cell.name, "`" + report::row_name(row.rule, row.kind) + "`", row.seeds()});
      for (const auto& [length, lead] : row.at) rows.back().push_back(in_words(lead));
    }
  }
  return rows.empty() ? kNothingYet : markdown_table(rows);
}

// What was trained with a rule, and beside it, at the longest length, what takes no training: the
// first rescaling of the plan, and the model of the standard scale with near keys only.
std::string trained_leads_table(const std::vector<Cell>& cells) {
  Rows rows;
  for (const Cell& cell : cells) {
    const std::vector<LeadRow> all = lead_rows(cell, "accuracy");
    const auto at_last = [&](const auto& is_it) {
      const auto row = std::ranges::find_if(all, is_it);
      return row == all.end() ? "–" : in_words(row->at.rbegin()->second);
    };
    const std::string rescaled = at_last([](const LeadRow& x) { return x.kind == "rescaled"; });
    const std::string near =
        at_last([](const LeadRow& x) { return x.kind == "near" && x.rule == "standard"; });
    for (const LeadRow& row : all) {
      if (row.kind != "trained") continue;
      if (rows.empty()) {
        rows = heading_of(cell, {"cell", "rule", "seeds"});
        const std::string last = rows.front().back();
        rows.front().insert(rows.front().end(), {"rescaled, " + last, "near keys only, " + last});
      }
      rows.push_back({cell.name, "`" + row.rule + "`", row.seeds()});
      for (const auto& [length, lead] : row.at) rows.back().push_back(in_words(lead));
      rows.back().insert(rows.back().end(), {rescaled, near});
    }
  }
  return rows.empty() ? kNothingYet : markdown_table(rows);
}

// The gain at which a curve is highest.
double best_gain(const report::GainCurves& curves, std::int64_t length) {
  const std::vector<double>& accuracy = curves.curve.at(length);
  return curves.gains[std::ranges::max_element(accuracy) - accuracy.begin()];
}

// What a cell's best gain is at each length, from where to where over its seeds, and by how many
// points it is better than 1.
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

std::string best_gains_table(const std::vector<Cell>& cells) {
  const std::string rule = "entropy_invariant(base=64)";
  Rows rows;
  for (const Cell& cell : cells) {
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

std::string numbers_table(const std::vector<Cell>& cells) {
  Rows rows;
  for (const Cell& cell : cells) {
    if (cell.records.empty()) continue;
    if (rows.empty()) rows = heading_of(cell, {"cell", "row", "seeds"});
    for (const nlohmann::json& row : report::rules_json(cell.records)) {
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

}  // namespace

std::map<std::string, std::string> laboratory_tables(const std::filesystem::path& docs) {
  const std::vector<Cell> cells = cells_of(docs);
  std::string figures;
  for (const auto& [path, chart] : study_figures(docs))
    figures += fmt::format("![{}]({})\n", path.stem().string(), path.string());
  return {{"study-grid", grid_table(cells)},
          {"study-leads", leads_table(cells, "accuracy")},
          {"study-leads-in-nats", leads_table(cells, "cross_entropy")},
          {"study-numbers", numbers_table(cells)},
          {"study-best-gains", best_gains_table(cells)},
          {"study-gains", figures.empty() ? "No curve is measured yet.\n" : figures}};
}

std::string study_leads(const std::filesystem::path& docs) {
  const std::vector<Cell> cells = cells_of(docs);
  return progress(cells) + "\n" + trained_leads_table(cells);
}

std::map<std::filesystem::path, report::LineChart> study_figures(
    const std::filesystem::path& docs) {
  std::map<std::filesystem::path, report::LineChart> figures;
  for (const Cell& cell : cells_of(docs)) {
    if (cell.records.empty()) continue;
    const report::LineChart chart = report::gain_chart(report::cell_result(cell.records));
    if (!chart.empty()) figures["figures/gains-" + cell.name + ".svg"] = chart;
  }
  return figures;
}

}  // namespace isentrope::docs
