// Draws a chart as a plain SVG, because the documentation must be readable without scripts.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "docs/generate/tables.h"
#include "tools/report/assets.h"
#include "tools/report/numbers.h"

namespace isentrope::docs {
namespace {

constexpr const char* kStyle =
    "text { font: 11px var(--sans); }\nrect { fill: var(--paper); }\n"
    ".title { font-size: 13px; font-weight: 650; }\n.title, .name { fill: var(--ink); }\n"
    ".quiet { fill: var(--muted); }\n.grid { stroke: var(--rule); }\n"
    ".line { fill: none; stroke-width: 2; }\n";

constexpr double kWidth = 640, kHeight = 376, kLeft = 56, kRight = 30, kTop = 54, kBottom = 44,
                 kLine = 15;
constexpr std::size_t kNameLetters = 90;  // letters that fit in a legend's line

// Returns the head of the reports' style sheet: colours that follow the reader's scheme.
std::string_view palette() {
  const std::string_view style = report::assets::page_css;
  return style.substr(0, style.find("* {"));
}

// Maps values to pixels along one axis.
struct Scale {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  report::Axis axis = report::Axis::linear;
  double begin = 0, end = 1;

  [[nodiscard]] double mapped(double value) const {
    return axis == report::Axis::linear ? value : std::log(value);
  }
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] double operator()(double value) const {
    return begin + (end - begin) * (mapped(value) - mapped(low)) / (mapped(high) - mapped(low));
  }
};

std::vector<double> ticks_of(const Scale& scale) {
  std::vector<double> ticks;
  if (scale.axis != report::Axis::linear) {
    const bool decimal = scale.axis == report::Axis::log10;
    double value = decimal ? std::pow(10, std::ceil(std::log10(scale.low))) : scale.low;
    for (; value <= scale.high * 1.001; value *= decimal ? 10 : 4) ticks.push_back(value);
    return ticks;
  }
  double step = std::pow(10, std::floor(std::log10(scale.high - scale.low)));
  if ((scale.high - scale.low) / step < 3) step /= 2;
  if ((scale.high - scale.low) / step > 7) step *= 2;
  for (double i = std::ceil(scale.low / step - 1e-9); i * step <= scale.high * 1.0001; ++i) {
    // By division, because 3 / 20 is 0.15 and 3 * 0.05 is not.
    ticks.push_back(step < 1 ? i / std::round(1 / step) : i * step);
  }
  return ticks;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& html,
                    const char* kind = "quiet") {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                     kind, x, y, anchor, html);
}

// Returns a name without markup, which SVG does not support.
std::string plain(const report::Text& name) {
  std::string text;
  bool markup = false;
  for (const char letter : name.html()) {
    if (letter == '<') markup = true;
    if (!markup) text += letter;
    if (letter == '>') markup = false;
  }
  return text;
}

// Returns the lines of a legend with several names, broken after commas.
std::vector<std::string> legend_lines(const report::Text& name) {
  std::string rest = plain(name);
  std::vector<std::string> lines;
  while (rest.size() > kNameLetters) {
    const std::size_t comma = rest.rfind(", ", kNameLetters);
    if (comma == std::string::npos) break;
    lines.push_back(rest.substr(0, comma + 1));
    rest.erase(0, comma + 2);
  }
  lines.push_back(rest);
  return lines;
}

std::string axes(const report::LineChart& chart, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : ticks_of(y)) {
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, y(tick),
                       kWidth - kRight);
    svg += text_at(kLeft - 6, y(tick) + 4, "end", report::compact(tick));
  }
  for (const double tick : chart.x_ticks.empty() ? ticks_of(x) : chart.x_ticks)
    svg += text_at(x(tick), kHeight - kBottom + 16, "middle", report::compact(tick));
  svg +=
      text_at((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", report::escape(chart.x_label));
  return svg + text_at(8, kTop - 18, "start", report::escape(chart.y_label));
}

// Returns the half-length of the bar at a point; 0 if there is none.
double reach(const report::Series& series, std::size_t point) {
  return series.spread.empty() ? 0 : series.spread[point];
}

std::string bars(const report::Series& series, const std::string& style, const Scale& x,
                 const Scale& y) {
  std::string path;
  for (std::size_t i = 0; i < series.spread.size(); ++i) {
    path += fmt::format("M{:.1f} {:.1f}V{:.1f}", x(series.x[i]), y(series.y[i] - reach(series, i)),
                        y(series.y[i] + reach(series, i)));
  }
  return path.empty() ? path : fmt::format("<path d=\"{}\" {}/>\n", path, style);
}

}  // namespace

std::string figure(const report::LineChart& chart) {
  Scale x, y;
  x.axis = chart.x_axis, y.axis = chart.y_axis;
  x.begin = kLeft, x.end = kWidth - kRight, y.begin = kHeight - kBottom, y.end = kTop;
  if (chart.y_from_zero) y.include(0);
  for (const auto& series : chart.series) {
    for (const double value : series.x) x.include(value);
    for (std::size_t i = 0; i < series.y.size(); ++i) {
      if (!std::isfinite(series.y[i])) continue;
      y.include(series.y[i] - reach(series, i));
      y.include(series.y[i] + reach(series, i));
    }
  }
  // Names are below the chart, because curves may be anywhere and names may be long.
  std::vector<std::vector<std::string>> names;
  for (const auto& series : chart.series) names.push_back(legend_lines(series.name));
  double height = kHeight;
  for (const auto& lines : names) height += kLine * static_cast<double>(lines.size());
  const std::string title = plain(chart.title);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\n"
      "<title>{}</title>\n<style>\n{}{}</style>\n<rect width=\"100%\" height=\"100%\"/>\n",
      kWidth, height, title, palette(), kStyle);
  svg += text_at(8, 18, "start", title, "title") + axes(chart, x, y);
  double below = kHeight + kLine * 0.6;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    const int place = series.colour.value_or(static_cast<int>(i));
    const std::string colour = fmt::format("style=\"stroke:{}\"", report::colour(place));
    const std::string line = fmt::format("{} stroke-dasharray=\"{}\"", colour,
                                         fmt::join(report::dashes(place, series.reference), " "));
    std::string path;
    for (std::size_t j = 0; j < series.x.size(); ++j) {
      if (!std::isfinite(series.y[j])) continue;
      path +=
          fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x(series.x[j]), y(series.y[j]));
    }
    svg += fmt::format("<path class=\"line\" d=\"{}\" {}/>\n", path, line);
    svg += bars(series, colour, x, y);
    svg += fmt::format("<path class=\"line\" d=\"M8 {:.1f}h26\" {}/>\n", below - 4, line);
    for (const std::string& name : names[i]) {
      svg += text_at(42, below, "start", name, "name");
      below += kLine;
    }
  }
  return svg + "</svg>\n";
}

}  // namespace isentrope::docs
