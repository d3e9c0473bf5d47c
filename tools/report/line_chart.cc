#include "tools/report/line_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "isentrope/error.h"
#include "tools/report/assets.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

bool is_drawn(const Series& series, std::size_t i) {
  return std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
}

double spread_at(const Series& series, std::size_t i) {
  return series.spread.empty() || !std::isfinite(series.spread[i]) ? 0 : series.spread[i];
}

void validate(const LineChart& chart) {
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const Series& series = chart.series[s];
    if (series.x.size() != series.y.size() ||
        (!series.spread.empty() && series.spread.size() != series.y.size())) {
      throw Error(fmt::format(
          "[line_plot] x, y and spread of a series must be of one size; got {}, {} and {} in "
          "series {}",
          series.x.size(), series.y.size(), series.spread.size(), s));
    }
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_drawn(series, i)) continue;
      if ((chart.x_axis != Axis::linear && series.x[i] <= 0) ||
          (chart.y_axis != Axis::linear && series.y[i] <= 0)) {
        throw Error(fmt::format(
            "[line_plot] a logarithmic axis takes numbers > 0; got ({}, {}) in series {}",
            series.x[i], series.y[i], s));
      }
    }
  }
}

json& named(json& items, const std::string& name) {
  return *std::find_if(items.begin(), items.end(),
                       [&](const json& item) { return item.at("name") == name; });
}

void set_axis(json& scale, Axis axis) {
  scale["type"] = axis == Axis::linear ? "linear" : "log";
  if (axis != Axis::linear) {
    scale["base"] = axis == Axis::log2 ? 2 : 10;
    scale.erase("zero");
  }
}

std::string label_of(const LineChart& chart, const Series& series, std::size_t i) {
  const double spread = spread_at(series, i);
  const std::string value = decimal(series.y[i], chart.decimals);
  // No-break spaces keep it on one line.
  return spread > 0 ? value + "\u00a0±\u00a0" + decimal(spread, chart.decimals) : value;
}

json points_of(const LineChart& chart, const std::vector<LegendEntry>& legend) {
  json points = json::array();
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const Series& series = chart.series[s];
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_drawn(series, i)) continue;
      const double spread = spread_at(series, i);
      // On a logarithmic axis a bar that reaches below zero has no lower end.
      const bool bar = chart.y_axis == Axis::linear || series.y[i] > spread;
      points.push_back({{"series", s},
                        {"x", series.x[i]},
                        {"y", series.y[i]},
                        {"low", bar ? series.y[i] - spread : series.y[i]},
                        {"high", series.y[i] + spread},
                        {"place", compact(series.x[i])},
                        {"label", label_of(chart, series, i)},
                        {"marked", !legend[s].marker.path.empty()}});
    }
  }
  return points;
}

std::vector<LegendEntry> legend_of(const LineChart& chart) {
  std::vector<LegendEntry> legend;
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const Series& series = chart.series[s];
    const int index = series.colour.value_or(static_cast<int>(s));
    const bool marked = chart.markers && !series.reference && index != kNeutral;
    legend.push_back({series.name, colour(index), dashes(index, series.reference),
                      marked ? kMarkers[index % std::size(kMarkers)] : Marker{}});
  }
  return legend;
}

json spec_of(const LineChart& chart, const std::vector<LegendEntry>& legend) {
  json spec = json::parse(assets::line_chart_json);
  named(spec["data"], "points")["values"] = points_of(chart, legend);
  json& scales = spec["scales"];
  set_axis(named(scales, "x"), chart.x_axis);
  set_axis(named(scales, "y"), chart.y_axis);
  // Padding for the first and last marker.
  if (chart.markers) named(scales, "x")["padding"] = 10;
  if (chart.y_from_zero) named(scales, "y")["zero"] = true;
  for (std::size_t s = 0; s < legend.size(); ++s) {
    for (const char* scale : {"colour", "dash", "shape"})
      named(scales, scale)["domain"].push_back(s);
    named(scales, "colour")["range"].push_back(legend[s].colour);
    named(scales, "dash")["range"].push_back(legend[s].dashes);
    named(scales, "shape")["range"].push_back(legend[s].marker.shape);
  }
  spec["axes"][0]["title"] = chart.x_label;
  spec["title"] = {{"text", chart.y_label}};
  if (!chart.x_ticks.empty()) spec["axes"][0]["values"] = chart.x_ticks;
  return spec;
}

// Table with a row for each x of any series, and a column for each series.
Table numbers_of(const LineChart& chart) {
  std::set<double> xs;
  std::vector<std::map<double, std::string>> labels(chart.series.size());
  Table table{{}, {chart.x_label}, {{}}};
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const Series& series = chart.series[s];
    table.columns.push_back(series.name);
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_drawn(series, i)) continue;
      xs.insert(series.x[i]);
      labels[s][series.x[i]] = label_of(chart, series, i);
    }
  }
  for (const double x : xs) {
    TableRow row{compact(x), {}};
    for (const auto& label : labels) row.cells.push_back(label.contains(x) ? label.at(x) : "–");
    table.groups[0].rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

bool LineChart::empty() const {
  return std::ranges::none_of(series, [](const Series& line) {
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (is_drawn(line, i)) return true;
    }
    return false;
  });
}

LineChart chart_named(std::string_view name, const Words& words) {
  const json found = chart_words(name, words);
  const auto axis = [&](const char* member) {
    const std::string kind = found.value(member, "linear");
    return kind == "log2" ? Axis::log2 : kind == "log10" ? Axis::log10 : Axis::linear;
  };
  return {.title = found.at("title").get<std::string>(),
          .caption = Text::markup(found.value("caption", "")),
          .x_label = found.at("x"),
          .y_label = found.at("y"),
          .x_axis = axis("x_axis"),
          .y_axis = axis("y_axis"),
          .x_ticks = found.value("ticks", std::vector<double>()),
          .y_from_zero = found.value("from_zero", false),
          .markers = found.value("markers", true),
          .decimals = found.value("decimals", 2),
          .series = {}};
}

Plot line_plot(const LineChart& chart) {
  validate(chart);
  const auto legend = legend_of(chart);
  return {chart.title, chart.caption, spec_of(chart, legend), legend, numbers_of(chart)};
}

}  // namespace isentrope::report
