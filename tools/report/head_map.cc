#include "tools/report/head_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isentrope/error.h"
#include "tools/report/assets.h"
#include "tools/report/numbers.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

std::string name_at(const std::vector<std::string>& names, std::size_t index) {
  return names.empty() ? fmt::format("{}", index) : names[index];
}

json cells_of(const HeadMap& map, const HeadMapAxes& axes) {
  json cells = json::array();
  for (std::size_t layer = 0; layer < map.values.size(); ++layer) {
    for (std::size_t head = 0; head < map.values[layer].size(); ++head) {
      const double value = map.values[layer][head];
      if (std::isnan(value)) continue;
      cells.push_back(
          {{"layer", layer},
           {"head", head},
           {"value", value},
           {"label",
            fmt::format("{} {}, {} {}: {} {}", axes.x, name_at(axes.columns, layer), axes.y,
                        name_at(axes.rows, head), map.quantity, decimal(value, map.decimals))}});
    }
  }
  return cells;
}

// The domain remains the indices, which sort as numbers; labels look up the names.
void name_axis(json& axis, const std::string& title, const std::vector<std::string>& names) {
  axis["title"] = title;
  if (!names.empty())
    axis["encode"]["labels"]["update"]["text"]["signal"] =
        fmt::format("{}[datum.value]", json(names).dump());
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

Plot head_map_plot(const HeadMap& map, const HeadMapAxes& axes) {
  std::size_t most_heads = 0;
  for (const auto& layer : map.values) most_heads = std::max(most_heads, layer.size());
  json spec = json::parse(assets::head_map_json);
  spec["height"] = 60 + 18 * most_heads;
  spec["data"][0]["values"] = cells_of(map, axes);
  name_axis(spec["axes"][0], axes.x, axes.columns);
  name_axis(spec["axes"][1], axes.y, axes.rows);
  json& colour = spec["scales"][2];
  colour["domain"] = {map.lowest, map.highest};
  colour["range"]["scheme"] = map.scheme;
  spec["legends"][0]["title"] = map.quantity;
  return {.title = map.title, .caption = map.caption, .spec = spec, .legend = {}, .numbers = {}};
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

void require_count(std::string_view place, std::string_view name, std::size_t wanted,
                   std::size_t got) {
  if (got != wanted)
    throw Error(fmt::format("{} must have {} {}; got {}", place, wanted, name, got));
}

}  // namespace isentrope::report
