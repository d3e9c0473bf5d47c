// Page of a log of a training or of a backend of ggml.

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/statistics.h"
#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using analysis::number_in;
using nlohmann::json;
using Head = std::pair<std::size_t, std::size_t>;  // layer and head
using Numbers = std::map<std::string, double, std::less<>>;

// Number of a head in a log, and its map.
struct Measured {
  std::string name;
  HeadMap map;
};

// Returns the map of a statistic: the first sentence of what it means, over the rows of a step.
HeadMap map_of(const Statistic& statistic) {
  const bool is_mean = statistic.logged == Logged::mean, is_share = statistic.unit.empty();
  std::string title(statistic.label);
  title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  const std::string unit = is_share ? "" : fmt::format(", in {}", statistic.unit);
  const std::string caption =
      fmt::format("{} {} of a step{}.", statistic.means.substr(0, statistic.means.find(". ") + 1),
                  is_mean ? "Mean over the rows" : "Largest of any row", unit);
  return {.settings = {{"title", title},
                       {"caption", caption},
                       {"quantity", statistic.label},
                       {"scheme", is_mean ? "viridis" : "inferno"},
                       {"lowest", 0},
                       {"highest", is_share ? 1 : 0},
                       {"decimals", is_share  ? 3
                                    : is_mean ? 2
                                              : 1}},
          .values = {}};
}

// Returns the statistics that logs of a training have, and the first key's weight, which is in
// those of a backend of ggml.
std::vector<Measured> all_measured() {
  std::vector<Measured> all;
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.logged != Logged::never)
      all.push_back({std::string(statistic.name), map_of(statistic)});
  });
  all.push_back({"first_key_weight", map_named("monitored first key map", {})});
  return all;
}

struct Log {
  std::vector<Measured> measured;
  std::set<double> steps;
  std::map<Head, std::map<double, Numbers>> heads;
  std::map<std::size_t, std::string> modules;  // by layer
};

Log read_log(const json& document) {
  Log log;
  const json& rows = document.at("rows");
  for (Measured& number : all_measured()) {
    const bool charted = number.name == "entropy" || number.name == "max_logit";
    if (charted || (!rows.empty() && rows[0].contains(number.name)))
      log.measured.push_back(std::move(number));
  }
  for (const json& row : rows) {
    const double step = row.at("step").get<double>();
    const std::size_t layer = row.at("layer");
    log.steps.insert(step);
    log.modules[layer] = row.at("module").get<std::string>();
    Numbers& numbers = log.heads[{layer, row.at("head").get<std::size_t>()}][step];
    for (const Measured& number : log.measured)
      numbers[number.name] = number_in(row.at(number.name));
  }
  if (log.steps.empty()) throw Error("[monitor_report] the log must have a row; got none");
  return log;
}

double at(const std::map<double, Numbers>& head, double step, std::string_view name) {
  const auto found = head.find(step);
  return found == head.end() ? std::numeric_limits<double>::quiet_NaN()
                             : found->second.find(name)->second;
}

// Map with steps as columns and all heads, layer after layer, as rows.
Plot steps_map(const Log& log, const Measured& number) {
  HeadMap map = number.map;
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
