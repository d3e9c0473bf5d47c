// HeadMap: one number for each head of a model, as colours by layer and head.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/page.h"

namespace isentrope::report {

// Values as [layers][heads]; NaN leaves a cell empty.
using HeadValues = std::vector<std::vector<double>>;

struct HeadMap {
  // As in charts.json: title, caption, label of the numbers, Vega's colour scheme and its ends.
  nlohmann::json settings;
  HeadValues values;
  // Titles of the axes, and names of columns and rows; empty names: indices.
  std::string x = "layer", y = "head";
  std::vector<std::string> columns = {}, rows = {};
};

// Returns the map of that name in charts.json, with its placeholders replaced by `words`.
[[nodiscard]] HeadMap map_named(std::string_view name, HeadValues values, const Words& words = {});

[[nodiscard]] Plot head_map_plot(const HeadMap& map);

// Returns the mean of the numbers that are not NaN; NaN if all are.
template <std::ranges::input_range Numbers>
[[nodiscard]] double mean_of(Numbers&& numbers) {
  double sum = 0, count = 0;
  for (const double number : numbers) {
    if (std::isnan(number)) continue;
    sum += number;
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

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
