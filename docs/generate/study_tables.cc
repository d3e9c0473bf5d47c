// What the laboratory's study found: the grid with what of it is done, the leads with their errors,
// the numbers they come from, and the curves of constant gains.

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

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

std::string leads_table(const std::vector<Cell>& cells) {
  Rows rows;
  for (const Cell& cell : cells) {
    if (cell.records.empty()) continue;
    std::map<std::string, std::map<std::int64_t, const Lead*>> by_row;
    std::vector<std::string> names;
    const std::vector<Lead> leads = report::leads_of(report::rules_json(cell.records));
    for (const Lead& lead : leads) {
      if (lead.metric != "accuracy" || lead.seeds < 2) continue;
      const std::string name = report::row_name(lead.rule, lead.kind);
      if (!by_row.contains(name)) names.push_back(name);
      by_row[name][lead.length] = &lead;
    }
    if (names.empty()) continue;
    if (rows.empty()) rows = heading_of(cell, {"cell", "rule", "seeds"});
    for (const std::string& name : names) {
      const auto& at = by_row.at(name);
      rows.push_back({cell.name, "`" + name + "`", std::to_string(at.begin()->second->seeds)});
      for (const auto& [length, lead] : at) {
        rows.back().push_back(fmt::format("{} ± {} {}", report::signed_decimal(lead->lead.mean, 1),
                                          report::decimal(lead->lead.se, 1),
                                          report::name_of(lead->lead.verdict)));
      }
    }
  }
  return rows.empty() ? kNothingYet : markdown_table(rows);
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
          {"study-leads", leads_table(cells)},
          {"study-numbers", numbers_table(cells)},
          {"study-gains", figures.empty() ? "No curve is measured yet.\n" : figures}};
}

std::string study_leads(const std::filesystem::path& docs) {
  const std::vector<Cell> cells = cells_of(docs);
  return progress(cells) + "\n" + leads_table(cells);
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
