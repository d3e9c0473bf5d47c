// Measured errors over their budgets, from docs/results/numerics.json.

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "docs/generate/tables.h"
#include "isentrope/statistics.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

// {"output f32": {"AVX2": {"maximum": 0.2, "quantiles": [...]}}}
json measured(const std::filesystem::path& docs) {
  return json::parse(std::ifstream(docs / "results/numerics.json")).at("error_over_budget");
}

// Returns the instruction sets: first AVX-512's, if the machine has it, and last EMU128 or SCALAR.
std::vector<std::string> targets_of(const json& results) {
  std::set<std::string, std::greater<>> names;
  for (const auto& [target, ratios] : results.at("output f32").items()) names.insert(target);
  std::vector<std::string> wide, narrow;
  for (const std::string& name : names) (name.starts_with("AVX") ? wide : narrow).push_back(name);
  wide.insert(wide.end(), narrow.begin(), narrow.end());
  return wide;
}

}  // namespace

std::map<std::string, std::string> numerics_tables(const std::filesystem::path& docs) {
  const json results = measured(docs);
  std::map<std::string, std::map<std::string, double>> largest;  // by result and type
  for (const auto& [result, of_target] : results.items()) {
    const std::size_t space = result.rfind(' ');
    double& ratio = largest[result.substr(0, space)][result.substr(space + 1)];
    for (const json& ratios : of_target)
      ratio = std::max(ratio, ratios.at("maximum").get<double>());
  }
  const std::vector<std::string> types = {"f32", "bf16", "f16"};
  Rows rows = {{"result"}};
  rows.front().insert(rows.front().end(), types.begin(), types.end());
  for (const auto& [result, of_type] : largest) {
    rows.push_back({result});
    for (const std::string& type : types)
      rows.back().push_back(fmt::format("{:.2g}", of_type.at(type)));
  }
  return {{"maxima", markdown_table(rows)}};
}

report::LineChart error_over_budget_chart(const std::filesystem::path& docs) {
  const json results = measured(docs);
  const std::string target = targets_of(results).front();
  report::LineChart chart;
  chart.title = "Errors over their budgets";
  chart.x_label = "share of problems (%)";
  chart.y_label = "worst error over budget, f32, " + target;
  chart.y_from_zero = true;
  std::vector<std::string> shown = {"output", "dq", "dk", "dv"};
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.differentiable()) shown.emplace_back(statistic.name);
  });
  for (const std::string& result : shown) {
    report::Series series{.name = report::Text(result), .x = {}, .y = {}};
    const json& quantiles = results.at(result + " f32").at(target).at("quantiles");
    for (std::size_t i = 0; i < quantiles.size(); ++i) {
      series.x.push_back(100 * static_cast<double>(i) / static_cast<double>(quantiles.size() - 1));
      series.y.push_back(quantiles[i].get<double>());
    }
    chart.series.push_back(series);
  }
  return chart;
}

}  // namespace isentrope::docs
