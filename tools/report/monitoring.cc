// Page of a log of a training or of a backend of ggml.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "isentrope/error.h"
#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using nlohmann::json;
using Head = std::pair<std::size_t, std::size_t>;  // layer and head
using Numbers = std::map<std::string_view, double>;

// Numbers of a head and their maps. Entropy and largest logit are in every log; the largest
// probability is in those of a training, the first key's weight in those of a backend of ggml.
struct Measured {
  const char* name;
  const char* chart;
  bool required;
};
constexpr Measured kMeasured[] = {{"entropy", "monitored entropy map", true},
                                  {"max_logit", "monitored logit map", true},
                                  {"max_probability", "monitored probability map", false},
                                  {"first_key_weight", "monitored first key map", false}};

struct Log {
  std::vector<Measured> measured;
  std::set<double> steps;
  std::map<Head, std::map<double, Numbers>> heads;
  std::map<std::size_t, std::string> modules;  // by layer
};

Log read_log(const json& document) {
  Log log;
  const json& rows = document.at("rows");
  for (const Measured& number : kMeasured) {
    if (number.required || (!rows.empty() && rows[0].contains(number.name)))
      log.measured.push_back(number);
  }
  for (const json& row : rows) {
    const double step = row.at("step").get<double>();
    const std::size_t layer = row.at("layer");
    log.steps.insert(step);
    log.modules[layer] = row.at("module").get<std::string>();
    Numbers& numbers = log.heads[{layer, row.at("head").get<std::size_t>()}][step];
    for (const Measured& number : log.measured)
      numbers[number.name] = number_of(row.at(number.name));
  }
  if (log.steps.empty()) throw Error("[monitor_report] the log must have a row; got none");
  return log;
}

double at(const std::map<double, Numbers>& head, double step, std::string_view name) {
  const auto found = head.find(step);
  return found == head.end() ? std::numeric_limits<double>::quiet_NaN() : found->second.at(name);
}

// Map with steps as columns and all heads, layer after layer, as rows.
Plot steps_map(const Log& log, const Measured& number) {
  HeadMap map = map_named(number.chart, {});
  map.x = "step";
  map.y = "layer.head";
  double highest = 0;
  for (const double step : log.steps) {
    map.columns.push_back(compact(step));
    auto& column = map.values.emplace_back();
    for (const auto& [head, numbers] : log.heads) {
      column.push_back(at(numbers, step, number.name));
      if (std::isfinite(column.back())) highest = std::max(highest, column.back());
    }
  }
  if (map.settings.at("highest") == 0) map.settings["highest"] = highest;
  for (const auto& [head, numbers] : log.heads)
    map.rows.push_back(fmt::format("{}.{}", head.first, head.second));
  return head_map_plot(map);
}

// Chart with one line a layer: the mean over its heads, or the largest.
LineChart by_layer(const Log& log, std::string_view chart, std::string_view name, bool largest) {
  LineChart result = chart_named(chart);
  for (const auto& [layer, module] : log.modules) {
    Series series{Text().code(module), {}, {}};
    for (const double step : log.steps) {
      std::vector<double> values;
      for (const auto& [head, numbers] : log.heads) {
        const double value = at(numbers, step, name);
        if (head.first == layer && !std::isnan(value)) values.push_back(value);
      }
      if (values.empty()) continue;
      series.x.push_back(step);
      series.y.push_back(largest ? std::ranges::max(values) : mean_of(values));
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
  const Log log = read_as("monitor", [&] { return read_log(document); });
  Page page("Attention by steps",
            fmt::format("{} modules, {} heads, {} steps from {} to {}", log.modules.size(),
                        log.heads.size(), log.steps.size(), compact(*log.steps.begin()),
                        compact(*log.steps.rbegin())));
  page.heading("Heads by steps");
  for (const Measured& number : log.measured) page.plot(steps_map(log, number));
  page.heading("Layers")
      .plot(line_plot(by_layer(log, "monitored entropy", "entropy", false)))
      .plot(line_plot(by_layer(log, "monitored logit", "max_logit", true)));
  return page.html();
}

}  // namespace isentrope::report
