// HeadMap: one number for each head of a model, as colours by layer and head.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/page.h"

namespace isentrope::report {

// Values as [layers][heads]; NaN leaves a cell empty.
using HeadValues = std::vector<std::vector<double>>;

struct HeadMap {
  Text title;
  Text caption;
  std::string quantity;        // label of the numbers in legend and tooltips
  std::string scheme;          // a colour scheme of Vega
  double lowest = 0, highest;  // ends of the colours
  int decimals = 2;
  HeadValues values;
};

// Returns the map of that name in charts.json, with its placeholders replaced by `words`.
[[nodiscard]] HeadMap map_named(std::string_view name, HeadValues values, const Words& words = {});

// Titles of the axes, and names of columns and rows; empty names: indices.
struct HeadMapAxes {
  std::string x = "layer", y = "head";
  std::vector<std::string> columns = {}, rows = {};
};

[[nodiscard]] Plot head_map_plot(const HeadMap& map, const HeadMapAxes& axes = {});

// Returns the mean over the heads that are not NaN; NaN if all are.
[[nodiscard]] double mean_of(const HeadValues& values);

// Throws Error "PLACE must have WANTED NAME; got GOT" unless both numbers are equal.
void require_count(std::string_view place, std::string_view name, std::size_t wanted,
                   std::size_t got);

// Requires as many layers, and as many heads in each, as `wanted` has.
template <typename Wanted, typename Got>
void require_heads_of(std::string_view place, const std::vector<Wanted>& wanted,
                      const std::vector<Got>& got) {
  require_count(place, "layers", wanted.size(), got.size());
  for (std::size_t layer = 0; layer < wanted.size(); ++layer) {
    require_count(place, "heads in layer " + std::to_string(layer), wanted[layer].size(),
                  got[layer].size());
  }
}

}  // namespace isentrope::report
