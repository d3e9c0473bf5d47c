// LineChart: series over a common axis, as a Plot with a legend and a table of its numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/page.h"

namespace isentrope::report {

enum class Axis { linear, log2, log10 };

struct Series {
  Text name;
  std::vector<double> x, y;         // same size; non-finite points are omitted
  std::vector<double> spread = {};  // half-length of the bar at y; empty: no bars
  bool reference = false;           // dotted and without markers, for comparison
  // Index into the palette, or kNeutral. Defaults to the place in the chart; set it if the same
  // thing appears in several charts.
  std::optional<int> colour = {};
};

// Returns the series of y(x).
template <typename Function>
[[nodiscard]] Series curve(Text name, std::vector<double> x, const Function& y,
                           bool reference = false) {
  Series series{.name = std::move(name), .x = std::move(x), .y = {}, .reference = reference};
  for (const double value : series.x) series.y.push_back(y(value));
  return series;
}

struct LineChart {
  Text title;
  Text caption;
  std::string x_label, y_label;
  Axis x_axis = Axis::linear, y_axis = Axis::linear;
  std::vector<double> x_ticks;  // empty: chosen by Vega
  bool y_from_zero = false;
  bool markers = true;  // off for series of many points
  int decimals = 2;     // of y, in the table and the tooltip
  std::vector<Series> series;

  // Returns whether there is nothing to draw.
  [[nodiscard]] bool empty() const;
};

// Returns the chart of that name in charts.json without series, with `words` for placeholders.
[[nodiscard]] LineChart chart_named(std::string_view name, const Words& words = {});

// Returns the plot. Throws Error if x and y of a series differ in size, or a logarithmic axis has a
// number <= 0.
[[nodiscard]] Plot line_plot(const LineChart& chart);

}  // namespace isentrope::report
