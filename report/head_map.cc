#include "report/head_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/numbers.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

json cells_of(const HeadMap& map) {
  json cells = json::array();
  for (std::size_t layer = 0; layer < map.values.size(); ++layer) {
    for (std::size_t head = 0; head < map.values[layer].size(); ++head) {
      const double value = map.values[layer][head];
      if (std::isnan(value)) continue;
      cells.push_back({{"layer", layer},
                       {"head", head},
                       {"value", value},
                       {"label", fmt::format("layer {}, head {}: {} {}", layer, head, map.quantity,
                                             decimal(value, map.decimals))}});
    }
  }
  return cells;
}

json axis(const char* scale, const char* orient, const char* title) {
  return {{"scale", scale},
          {"orient", orient},
          {"title", title},
          {"labelOverlap", true},
          {"domain", false}};
}

json band(const char* name, const char* field, const char* range) {
  return {{"name", name},
          {"type", "band"},
          {"range", range},
          {"domain", {{"data", "cells"}, {"field", field}, {"sort", true}}}};
}

json rectangles() {
  return {{"type", "rect"},
          {"from", {{"data", "cells"}}},
          {"encode",
           {{"update",
             {{"x", {{"scale", "x"}, {"field", "layer"}}},
              {"width", {{"scale", "x"}, {"band", 1}}},
              {"y", {{"scale", "y"}, {"field", "head"}}},
              {"height", {{"scale", "y"}, {"band", 1}}},
              {"fill", {{"scale", "colour"}, {"field", "value"}}},
              {"tooltip", {{"field", "label"}}}}}}}};
}

}  // namespace

HeadMap map_named(std::string_view name, HeadValues values, const Words& words) {
  const json found = chart_words(name, words);
  return {.title = found.at("title").get<std::string>(),
          .caption = Text::markup(found.at("caption").get<std::string>()),
          .quantity = found.at("quantity"),
          .scheme = found.at("scheme"),
          .lowest = found.value("lowest", 0.0),
          .highest = found.value("highest", 1.0),
          .decimals = found.at("decimals"),
          .values = std::move(values)};
}

Plot head_map_plot(const HeadMap& map) {
  std::size_t most_heads = 0;
  for (const auto& layer : map.values) most_heads = std::max(most_heads, layer.size());
  Plot plot;
  plot.title = map.title;
  plot.caption = map.caption;
  plot.spec = {
      {"autosize", {{"type", "fit"}, {"contains", "padding"}}},
      {"width", 640},
      {"height", 60 + 18 * most_heads},
      {"data", {{{"name", "cells"}, {"values", cells_of(map)}}}},
      {"scales",
       {band("x", "layer", "width"),
        band("y", "head", "height"),
        {{"name", "colour"},
         {"type", "linear"},
         {"clamp", true},
         {"domain", {map.lowest, map.highest}},
         {"range", {{"scheme", map.scheme}}}}}},
      {"axes", {axis("x", "bottom", "layer"), axis("y", "left", "head")}},
      {"legends", {{{"fill", "colour"}, {"title", map.quantity}, {"type", "gradient"}}}},
      {"marks", {rectangles()}},
  };
  return plot;
}

double mean_of(const HeadValues& values) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& layer : values) {
    for (const double value : layer) {
      if (std::isnan(value)) continue;
      sum += value;
      ++count;
    }
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

}  // namespace isentrope::report
