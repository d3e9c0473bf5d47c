// Page: one self-contained HTML file out of headings, prose, tables and plots.
//
//   Page page("Length extrapolation", "Two rules, five lengths");
//   page.heading("Accuracy").prose("...").table(table).plot(line_plot(chart));
//   std::ofstream(path) << page.html();
//
// The file loads nothing: styles, plot specifications and the plotting library are in it, and its
// content security policy forbids everything else. It follows the reader's colour scheme, fits a
// phone and prints.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/text.h"

namespace isentrope::report {

struct TableRow {
  Text label;
  std::vector<Text> cells;
};

// Rows that belong together, under a heading of their own when it is not empty.
struct TableGroup {
  Text heading;
  std::vector<TableRow> rows;
};

struct Table {
  Text caption;
  std::vector<Text> columns;  // the first one heads the labels; empty: pairs of label and value
  std::vector<TableGroup> groups;
};

// How the series of that place in a chart is drawn: "var(--series-1)" and so on, in the reader's
// colour scheme, and the lengths of its dashes and gaps. Both go round, so that the first forty
// series all look different; references are dotted.
[[nodiscard]] std::string colour(int index);
[[nodiscard]] std::vector<int> dashes(int index, bool reference);
constexpr int kNeutral = -1;  // grey: no thing of its own, only for comparison

enum class Marker { none, circle, square, diamond, triangle };

struct LegendEntry {
  Text name;
  std::string colour;
  std::vector<int> dashes;
  Marker marker = Marker::none;
};

// A figure. `spec` is any Vega specification; its width is set by the page. `numbers` holds what
// the plot shows. Two signals, when the specification has them, make it answer the reader:
//
//   hidden  indices of the legend entries that the reader switched off
//   at      the x under the pointer or null; the page picks the nearest x of the data set "points"
//           (fields x, place, series, label) and shows the labels there
struct Plot {
  Text title;
  Text caption;
  nlohmann::json spec;
  std::vector<LegendEntry> legend;
  Table numbers;
};

// What stands where a template has {{name}}, as it is; it may hold braces of its own.
using Words = std::map<std::string_view, std::string_view>;
[[nodiscard]] std::string fill(std::string_view text, const Words& words);
// The markup under <!-- NAME --> in a file of several parts.
[[nodiscard]] std::string part_of(std::string_view pages, std::string_view name,
                                  const Words& words = {});
// What charts.json says of the chart of that name.
[[nodiscard]] nlohmann::json chart_words(std::string_view name, const Words& words);

class Page {
 public:
  explicit Page(std::string title, const Text& summary = {});

  Page& heading(const Text& text);
  Page& subheading(const Text& text);  // which the contents leave out
  Page& prose(const Text& text);
  Page& code(std::string_view text);    // a command to copy
  Page& markup(std::string_view html);  // of a template, as it is
  Page& table(const Table& table);
  Page& plot(const Plot& plot);
  Page& footer(const Text& text);  // last of all, wherever it is called

  [[nodiscard]] std::string html() const;

 private:
  std::string title_, summary_, body_, footer_;
  int plots_ = 0;
};

}  // namespace isentrope::report
