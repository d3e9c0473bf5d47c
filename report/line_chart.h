// LineChart: series over a common axis, as a Plot with its legend and its table of numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/page.h"

namespace isentrope::report {

enum class Axis { linear, log2, log10 };

struct Series {
  Text name;
  std::vector<double> x, y;         // same size; points that are not finite are left out
  std::vector<double> spread = {};  // half-length of a bar about y; empty: no bars
  bool reference = false;           // dotted and without markers: what the others are compared with
  // Counts through the palette, or kNeutral. Its place in the chart when not given: give it where
  // the same thing appears in several charts.
  std::optional<int> colour = {};
};

struct LineChart {
  Text title;
  Text caption;
  std::string x_label, y_label;
  Axis x_axis = Axis::linear, y_axis = Axis::linear;
  std::vector<double> x_ticks;  // empty: chosen by Vega
  bool y_from_zero = false;
  bool markers = true;  // off for series of many points
  int decimals = 2;     // of y, in the table and under the pointer
  std::vector<Series> series;

  // Whether anything is there to draw.
  [[nodiscard]] bool empty() const;
};

// What charts.json says of the chart of that name, with `words` in its places; without series.
[[nodiscard]] LineChart chart_named(std::string_view name, const Words& words = {});

// Throws Error when x and y of a series differ in size, or a logarithmic axis meets a number <= 0.
[[nodiscard]] Plot line_plot(const LineChart& chart);

}  // namespace isentrope::report
