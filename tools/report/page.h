// Page: one self-contained HTML file out of headings, prose, tables and plots.
//
//   Page page("Length extrapolation", "Two rules, five lengths");
//   page.heading("Accuracy").prose("...").table(table).plot(line_plot(chart));
//   std::ofstream(path) << page.html();
//
// The file loads nothing: styles, plots and their library are in it, and its content security
// policy forbids the rest. It follows the reader's colour scheme, fits a phone and prints.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/report/text.h"

namespace isentrope::report {

struct TableRow {
  Text label;
  std::vector<Text> cells;
};

// Rows of a table under a common heading, which may be empty.
struct TableGroup {
  Text heading;
  std::vector<TableRow> rows;
};

struct Table {
  Text caption;
  std::vector<Text> columns;  // the first column holds the labels; empty: pairs of label and value
  std::vector<TableGroup> groups;

  // Adds a row to the last group; without groups, to a new one without a heading.
  void add(Text label, std::vector<Text> cells);
};

// Colour of series `index`, "var(--series-1)", ..., by the reader's scheme; and its dashes and
// gaps. Both repeat, so that the first forty series differ; references are dotted.
[[nodiscard]] std::string colour(int index);
[[nodiscard]] std::vector<int> dashes(int index, bool reference);
constexpr int kNeutral = -1;  // grey, for comparison only

// A symbol of points: Vega's name of its shape, and its path in a legend; without one, no symbol.
struct Marker {
  std::string_view shape = "circle", path = "";
};
inline constexpr Marker kMarkers[] = {{"circle", "M10,6a4,4 0 1,0 8,0a4,4 0 1,0 -8,0"},
                                      {"square", "M10.5,2.5h7v7h-7z"},
                                      {"diamond", "M14,1l3.6,5l-3.6,5l-3.6,-5z"},
                                      {"triangle-up", "M14,1.5l4.5,8h-9z"}};

struct LegendEntry {
  Text name;
  std::string colour;
  std::vector<int> dashes;
  Marker marker{};
};

// A figure. `spec` is any Vega specification; the page sets its width. `numbers` is the table of
// the plotted data. Two signals, if the specification has them, make it interactive:
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

// Replacements for {{name}} in a template. They are inserted as they are, also with braces.
using Words = std::map<std::string_view, std::string>;
// Returns the markup under <!-- NAME --> in prose.html.
[[nodiscard]] Text prose_named(std::string_view name, const Words& words = {});
// Returns the words and settings of the chart of that name in charts.json.
[[nodiscard]] nlohmann::json chart_words(std::string_view name, const Words& words);

class Page {
 public:
  explicit Page(std::string title, const Text& summary = {});

  Page& heading(const Text& text);
  Page& subheading(const Text& text);  // not in the contents
  Page& prose(const Text& text);
  Page& code(std::string_view text);                           // a command to copy
  Page& says(std::string_view name, const Words& words = {});  // a part of prose.html
  Page& table(const Table& table);
  Page& plot(const Plot& plot);
  Page& footer(const Text& text);  // at the end, wherever it is called

  [[nodiscard]] std::string html() const;

 private:
  Page& add(std::string_view html);

  std::string title_, summary_, body_, footer_;
  int plots_ = 0;
};

}  // namespace isentrope::report
