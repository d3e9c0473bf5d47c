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
};

// Colour of series `index`, "var(--series-1)", ..., by the reader's scheme; and its dashes and
// gaps. Both repeat, so that the first forty series differ; references are dotted.
[[nodiscard]] std::string colour(int index);
[[nodiscard]] std::vector<int> dashes(int index, bool reference);
constexpr int kNeutral = -1;  // grey, for comparison only

enum class Marker { none, circle, square, diamond, triangle };

struct LegendEntry {
  Text name;
  std::string colour;
  std::vector<int> dashes;
  Marker marker = Marker::none;
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
using Words = std::map<std::string_view, std::string_view>;
[[nodiscard]] std::string fill(std::string_view text, const Words& words);
// Returns the markup under <!-- NAME --> in a file of several parts.
[[nodiscard]] std::string part_of(std::string_view pages, std::string_view name,
                                  const Words& words = {});
[[nodiscard]] nlohmann::json chart_words(std::string_view name, const Words& words);

class Page {
 public:
  explicit Page(std::string title, const Text& summary = {});

  Page& heading(const Text& text);
  Page& subheading(const Text& text);  // not in the contents
  Page& prose(const Text& text);
  Page& code(std::string_view text);    // a command to copy
  Page& markup(std::string_view html);  // trusted HTML of a template
  Page& table(const Table& table);
  Page& plot(const Plot& plot);
  Page& footer(const Text& text);  // at the end, wherever it is called

  [[nodiscard]] std::string html() const;

 private:
  std::string title_, summary_, body_, footer_;
  int plots_ = 0;
};

}  // namespace isentrope::report
