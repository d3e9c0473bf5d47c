#include "tools/report/head_map.h"

#include <fmt/core.h>

#include <algorithm>

#include "isentrope/error.h"
#include "tools/report/assets.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

std::string name_at(const std::vector<std::string>& names, std::size_t index) {
  return names.empty() ? fmt::format("{}", index) : names[index];
}

json cells_of(const HeadMap& map) {
  json cells = json::array();
  const std::string quantity = map.settings.at("quantity");
  const int decimals = map.settings.at("decimals");
  for (std::size_t layer = 0; layer < map.values.size(); ++layer) {
    for (std::size_t head = 0; head < map.values[layer].size(); ++head) {
      const double value = map.values[layer][head];
      if (std::isnan(value)) continue;
      cells.push_back(
          {{"layer", layer},
           {"head", head},
           {"value", value},
           {"label", fmt::format("{} {}, {} {}: {} {}", map.x, name_at(map.columns, layer), map.y,
                                 name_at(map.rows, head), quantity, decimal(value, decimals))}});
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
  return {.settings = chart_words(name, words), .values = std::move(values)};
}

Plot head_map_plot(const HeadMap& map) {
  const json& settings = map.settings;
  std::size_t most_heads = 0;
  for (const auto& layer : map.values) most_heads = std::max(most_heads, layer.size());
  json spec = json::parse(assets::head_map_json);
  spec["height"] = 60 + 18 * most_heads;
  spec["data"][0]["values"] = cells_of(map);
  name_axis(spec["axes"][0], map.x, map.columns);
  name_axis(spec["axes"][1], map.y, map.rows);
  json& colour = spec["scales"][2];
  colour["domain"] = {settings.at("lowest").get<double>(), settings.at("highest").get<double>()};
  colour["range"]["scheme"] = settings.at("scheme");
  spec["legends"][0]["title"] = settings.at("quantity");
  return {.title = settings.at("title").get<std::string>(),
          .caption = Text::markup(settings.at("caption")),
          .spec = spec,
          .legend = {},
          .numbers = {}};
}

void require_count(std::string_view place, std::string_view name, std::size_t wanted,
                   std::size_t got) {
  if (got != wanted)
    throw Error(fmt::format("{} must have {} {}; got {}", place, wanted, name, got));
}

}  // namespace isentrope::report
