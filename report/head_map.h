// HeadMap: one number of every head of a model, as colours by layer and head.
#pragma once

#include <string>
#include <vector>

#include "report/page.h"

namespace isentrope::report {

// [layers][heads]; NaN leaves a cell empty.
using HeadValues = std::vector<std::vector<double>>;

struct HeadMap {
  Text title;
  Text caption;
  std::string quantity;        // names the numbers in legend and labels
  std::string scheme;          // a colour scheme of Vega
  double lowest = 0, highest;  // ends of the colours
  int decimals = 2;
  HeadValues values;
};

// What charts.json says of the map of that name, with `words` in its places.
[[nodiscard]] HeadMap map_named(std::string_view name, HeadValues values, const Words& words = {});

// What the axes are, with a name for each column and row; no names: their indices.
struct HeadMapAxes {
  std::string x = "layer", y = "head";
  std::vector<std::string> columns = {}, rows = {};
};

[[nodiscard]] Plot head_map_plot(const HeadMap& map, const HeadMapAxes& axes = {});

// The mean over layers and heads of what is a number; NaN where nothing is.
[[nodiscard]] double mean_of(const HeadValues& values);

}  // namespace isentrope::report
