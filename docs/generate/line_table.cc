// Accuracies and gains of log_512 n by model size, and a line extended to the note's size.

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "docs/generate/tables.h"
#include "tools/analysis/study.h"
#include "tools/report/extrapolation_charts.h"
#include "tools/report/numbers.h"
#include "tools/report/study.h"
#include "tools/report/verdict_words.h"

namespace isentrope::docs {
namespace {

using analysis::Cell;
using analysis::Row;

constexpr double kNotesSize = 6;
constexpr const char* kRule = "entropy_invariant(base=512)";
constexpr std::pair<const char*, const char*> kScales[] = {{"standard", "standard"},
                                                           {kRule, "log_512 n"}};

std::vector<std::string> accuracies(const std::string& model, const std::string& rule,
                                    const report::ByLength& values) {
  std::vector<std::string> row = {model, rule};
  for (const auto& [length, value] : values) row.push_back(report::decimal(value, 2));
  return row;
}

Rows accuracy_rows(const analysis::Study& line) {
  Rows rows = {{"model", "scale", "64", "128", "256", "512", "1024"},
               accuracies("the note's", "standard", report::su2021::kStandard),
               accuracies("the note's", "log_512 n", report::su2021::kEntropyInvariant)};
  if (!line.complete()) return rows;
  for (const Cell& cell : line.cells) {
    const report::Result result = report::cell_result(cell.records);
    for (const auto& [rule, scale] : kScales)
      for (const report::RuleResult& row : result.rules)
        if (row.kind == "trained" && row.rule == rule)
          rows.push_back(accuracies(cell.name, scale, row.mean.accuracy));
  }
  return rows;
}

// Returns gains by seed, in points.
std::map<std::int64_t, double> gains_of(const Cell& cell, std::size_t at) {
  const auto accuracy_of = [&](const std::string& rule) {
    const Row row = analysis::row_named(cell.records, {rule, "trained"});
    std::map<std::int64_t, double> found;
    for (std::size_t i = 0; i < row.seeds.size(); ++i)
      found[row.records[i]->at("seed")] = analysis::number_in(row.seeds[i]->at("accuracy").at(at));
    return found;
  };
  const std::map<std::int64_t, double> standard = accuracy_of("standard");
  std::map<std::int64_t, double> gains;
  for (const auto& [seed, accuracy] : accuracy_of(kRule))
    if (standard.contains(seed)) gains[seed] = accuracy - standard.at(seed);
  return gains;
}

// Returns the value at the note's size of the least-squares line in ln k through values by k >= 1.
double at_the_notes_size(const std::vector<double>& values) {
  double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
  const double count = static_cast<double>(values.size());
  const auto x = [](std::size_t i) { return std::log(static_cast<double>(i + 1)); };
  for (std::size_t i = 0; i < values.size(); ++i) {
    mean_x += x(i) / count;
    mean_y += values[i] / count;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    xy += (x(i) - mean_x) * (values[i] - mean_y);
    xx += (x(i) - mean_x) * (x(i) - mean_x);
  }
  return mean_y + xy / xx * (std::log(kNotesSize) - mean_x);
}

Rows gain_rows(const analysis::Study& line) {
  Rows rows = {{"log_512 n over the standard scale", "64", "128", "256", "512", "1024"},
               {"the note's"}};
  for (const auto& [length, value] : report::su2021::kStandard)
    rows.back().push_back(
        report::signed_decimal(report::su2021::kEntropyInvariant.at(length) - value, 1));
  for (const Cell& cell : line.cells) rows.push_back({cell.name});
  rows.push_back({"k = 6, by a straight line in ln k"});
  for (std::size_t at = 0; at + 1 < rows.front().size(); ++at) {
    std::map<std::int64_t, std::vector<double>> along;  // by seed, the gain at each size
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      std::vector<double> gains;
      for (const auto& [seed, gain] : gains_of(line.cells[i], at)) {
        gains.push_back(gain);
        along[seed].push_back(gain);
      }
      rows[i + 2].push_back(with_interval(gains, 1));
    }
    std::vector<double> there;
    for (const auto& [seed, gains] : along)
      if (gains.size() == line.cells.size()) there.push_back(at_the_notes_size(gains));
    rows.back().push_back(with_interval(there, 1));
  }
  return rows;
}

}  // namespace

std::string line_table(const std::filesystem::path& docs) {
  const analysis::Study line = analysis::read_study(
      nlohmann::ordered_json::parse(std::ifstream(docs / "results/line-to-the-note.json")));
  const std::string models = markdown_table(accuracy_rows(line)) + "\n";
  const std::string progress = report::progress_words(line) + "\n";
  if (!line.complete()) return models + progress;
  return models + markdown_table(gain_rows(line)) + "\n" + progress;
}

}  // namespace isentrope::docs
