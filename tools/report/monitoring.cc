#include "tools/report/monitoring.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "isentrope/error.h"
#include "tools/report/assets.h"
#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/numbers.h"
#include "tools/report/page.h"

namespace isentrope::report {
namespace {

using nlohmann::json;
using Head = std::pair<std::size_t, std::size_t>;  // layer and head
using Numbers = std::map<std::string_view, double>;

constexpr const char* kMeasured[] = {"entropy", "max_logit", "max_probability"};

struct Training {
  std::set<double> steps;
  std::map<Head, std::map<double, Numbers>> heads;
  std::map<std::size_t, std::string> modules;  // by layer
};

Training read_training(const json& document) {
  Training training;
  for (const json& row : document.at("rows")) {
    const double step = row.at("step").get<double>();
    const std::size_t layer = row.at("layer");
    training.steps.insert(step);
    training.modules[layer] = row.at("module").get<std::string>();
    Numbers& numbers = training.heads[{layer, row.at("head").get<std::size_t>()}][step];
    for (const char* name : kMeasured) numbers[name] = number_of(row.at(name));
  }
  if (training.steps.empty()) throw Error("[monitor_report] the log must have a row; got none");
  return training;
}

double at(const std::map<double, Numbers>& head, double step, std::string_view name) {
  const auto found = head.find(step);
  return found == head.end() ? std::numeric_limits<double>::quiet_NaN() : found->second.at(name);
}

// Map with steps as columns and all heads, layer after layer, as rows.
Plot steps_map(const Training& training, std::string_view chart, std::string_view name) {
  HeadMap map = map_named(chart, {});
  double highest = 0;
  for (const double step : training.steps) {
    auto& column = map.values.emplace_back();
    for (const auto& [head, numbers] : training.heads) {
      column.push_back(at(numbers, step, name));
      if (std::isfinite(column.back())) highest = std::max(highest, column.back());
    }
  }
  if (map.highest == 0) map.highest = highest;
  std::vector<std::string> rows;
  for (const auto& [head, numbers] : training.heads)
    rows.push_back(fmt::format("{}.{}", head.first, head.second));
  std::vector<std::string> columns;
  for (const double step : training.steps) columns.push_back(compact(step));
  return head_map_plot(map, {.x = "step", .y = "layer.head", .columns = columns, .rows = rows});
}

// Chart with one line a layer: the mean over its heads, or the largest.
LineChart by_layer(const Training& training, std::string_view chart, std::string_view name,
                   bool largest) {
  LineChart result = chart_named(chart);
  for (const auto& [layer, module] : training.modules) {
    Series series{.name = Text().code(module), .x = {}, .y = {}};
    for (const double step : training.steps) {
      double sum = 0, most = -std::numeric_limits<double>::infinity();
      int count = 0;
      for (const auto& [head, numbers] : training.heads) {
        const double value = at(numbers, step, name);
        if (head.first != layer || std::isnan(value)) continue;
        sum += value;
        most = std::max(most, value);
        ++count;
      }
      if (count == 0) continue;
      series.x.push_back(step);
      series.y.push_back(largest ? most : sum / count);
    }
    result.series.push_back(std::move(series));
  }
  return result;
}

}  // namespace

json monitor_document(const std::string& name, std::string_view lines) {
  json rows = json::array();
  for (std::size_t begin = 0, line = 1; begin < lines.size(); ++line) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    try {
      if (end > begin) rows.push_back(json::parse(lines.substr(begin, end - begin)));
    } catch (const json::parse_error&) {
      throw Error(fmt::format("{} is not JSON (line {})", name, line));
    }
    begin = end + 1;
  }
  return {{"kind", "monitor"}, {"rows", rows}};
}

std::string monitor_report(const json& document) {
  const Training training = read_as("monitor", [&] { return read_training(document); });
  Page page("Attention in training",
            fmt::format("{} modules, {} heads, {} steps from {} to {}", training.modules.size(),
                        training.heads.size(), training.steps.size(),
                        compact(*training.steps.begin()), compact(*training.steps.rbegin())));
  page.heading("Heads by steps")
      .plot(steps_map(training, "monitored entropy map", "entropy"))
      .plot(steps_map(training, "monitored logit map", "max_logit"))
      .plot(steps_map(training, "monitored probability map", "max_probability"));
  page.heading("Layers")
      .plot(line_plot(by_layer(training, "monitored entropy", "entropy", false)))
      .plot(line_plot(by_layer(training, "monitored logit", "max_logit", true)));
  return page.html();
}

}  // namespace isentrope::report
