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

// "var(--series-1)" and so on: a colour of the palette, round and round, in the reader's colour
// scheme.
[[nodiscard]] std::string colour(int index);
constexpr int kNeutral = -1;  // grey: no thing of its own, only for comparison

enum class Marker { none, circle, square, diamond, triangle };

struct LegendEntry {
  Text name;
  int colour = 0;
  bool dashed = false;
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

// Puts values where a template has {{name}}, as they are; a value may hold braces of its own.
[[nodiscard]] std::string fill(std::string_view text,
                               const std::map<std::string_view, std::string_view>& values);

class Page {
 public:
  explicit Page(std::string title, const Text& summary = {});

  Page& heading(const Text& text);
  Page& prose(const Text& text);
  Page& note(const Text& text);         // an aside
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
