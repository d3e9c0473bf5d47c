#include "tools/report/inspection.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "isentrope/error.h"
#include "tools/report/assets.h"
#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/numbers.h"
#include "tools/report/page.h"

namespace isentrope::report {
namespace {

using nlohmann::json;
using Column = std::vector<double>;  // by bin
using Heads = std::vector<Column>;   // of one layer
using Layers = std::vector<Heads>;

// Reads [layers][heads][bins]. Throws Error if a head has another number of bins.
Layers layers_of(const json& values, std::size_t bins, const std::string& place) {
  Layers layers;
  for (const json& layer : values) {
    Heads& heads = layers.emplace_back();
    for (const json& head : layer) {
      Column& column = heads.emplace_back();
      for (const json& value : head) column.push_back(number_of(value));
      require_count(place, "bins", bins, column.size());
    }
  }
  if (layers.empty() || layers.front().empty()) {
    throw Error(fmt::format("{} must have layers and heads; got none", place));
  }
  return layers;
}

struct Inspection {
  std::string model, rule, suggestion;
  std::int64_t texts, tokens;
  Column n;
  Layers entropy, spread, keys, max_logit, mass, distance;
  std::set<std::pair<std::size_t, std::size_t>> collapsed, blurred;
  HeadValues sink;   // share of the weight on the first key; empty in older documents
  Column positions;  // of keys, and the weight that they receive
  Layers received;
};

std::set<std::pair<std::size_t, std::size_t>> places(const json& list) {
  std::set<std::pair<std::size_t, std::size_t>> result;
  for (const json& place : list)
    result.emplace(place.at(0).get<std::size_t>(), place.at(1).get<std::size_t>());
  return result;
}

// Reads what keys receive.
void read_keys(const json& result, Inspection& r) {
  const std::string report = "[inspection_report] ";
  for (const json& layer : result.at("sink")) {
    auto& heads = r.sink.emplace_back();
    for (const json& share : layer) heads.push_back(number_of(share));
  }
  require_heads_of(report + "sink", r.entropy, r.sink);
  const json& received = result.at("received");
  for (const json& position : received.at("positions"))
    r.positions.push_back(position.get<double>());
  r.received = layers_of(received.at("mean"), r.positions.size(), report + "received.mean");
  require_heads_of(report + "received.mean", r.entropy, r.received);
}

Inspection read(const json& result) {
  require_version(result, "inspection", 2);
  Inspection r;
  r.model = result.at("model");
  const json& rule = result.at("rule").at("rule");
  r.rule = rule.is_null() ? "not known" : rule.get<std::string>();
  r.suggestion =
      result.at("suggestion").is_null() ? "" : result.at("suggestion").get<std::string>();
  r.texts = result.at("texts");
  r.tokens = result.at("tokens");
  for (const json& n : result.at("n")) r.n.push_back(n.get<double>());
  if (r.n.empty()) throw Error("[inspection_report] n must have a bin; got none");
  const json& mean = result.at("mean");
  const std::string report = "[inspection_report] ", spread = report + "spread.entropy";
  r.entropy = layers_of(mean.at("entropy"), r.n.size(), report + "mean.entropy");
  r.spread = layers_of(result.at("spread").at("entropy"), r.n.size(), spread);
  require_heads_of(spread, r.entropy, r.spread);
  for (const auto& [values, name] : {std::pair{&Inspection::keys, "effective_keys"},
                                     {&Inspection::max_logit, "max_logit"},
                                     {&Inspection::mass, "gradient_mass"},
                                     {&Inspection::distance, "distance"}}) {
    const std::string place = report + "mean." + name;
    r.*values = layers_of(mean.at(name), r.n.size(), place);
    require_heads_of(place, r.entropy, r.*values);
  }
  if (result.contains("sink")) read_keys(result, r);
  r.collapsed = places(result.at("collapsed"));
  r.blurred = places(result.at("blurred"));
  return r;
}

// Returns the mean over heads that are not NaN in a bin; NaN if all are.
double mean_over(const Heads& heads, std::size_t bin) {
  double sum = 0;
  int count = 0;
  for (const Column& head : heads) {
    if (std::isnan(head[bin])) continue;
    sum += head[bin];
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

double share_of_largest(double entropy, double n) { return n > 1 ? entropy / std::log(n) : 0; }

// Map of entropy / ln n, the fraction of its maximum, at the longest rows.
Plot share_map(const Inspection& r) {
  const std::size_t last = r.n.size() - 1;
  HeadValues values;
  for (const Heads& heads : r.entropy) {
    auto& layer = values.emplace_back();
    for (const Column& head : heads) layer.push_back(share_of_largest(head[last], r.n[last]));
  }
  const std::string n = fmt::format("{:.0f}", r.n[last]);
  return head_map_plot(map_named("entropy share map", std::move(values), {{"n", n}}));
}

// Returns the slope of entropy in ln n, by least squares over bins of at least 8 keys: 0 for a head
// of equally many keys in all rows, 1 for one that averages over all.
double slope_of(const Column& entropy, const Column& n) {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t bin = 0; bin < n.size(); ++bin) {
    if (n[bin] < 8 || std::isnan(entropy[bin])) continue;
    const double ln_n = std::log(n[bin]);
    count += 1;
    x += ln_n;
    y += entropy[bin];
    xx += ln_n * ln_n;
    xy += ln_n * entropy[bin];
  }
  const double spread = count * xx - x * x;
  return count < 2 || spread <= 0 ? std::numeric_limits<double>::quiet_NaN()
                                  : (count * xy - x * y) / spread;
}

// Map of those slopes. `under`: name of the scale, if there are several.
Plot growth_map(const Inspection& r, std::string_view under = "") {
  HeadValues values;
  for (const Heads& heads : r.entropy) {
    auto& layer = values.emplace_back();
    for (const Column& head : heads) layer.push_back(slope_of(head, r.n));
  }
  return head_map_plot(map_named("entropy growth map", std::move(values), {{"under", under}}));
}

// Map of the share of the first key.
Plot sink_map(const Inspection& r) {
  std::size_t sinks = 0, heads = 0;
  for (const auto& layer : r.sink) {
    heads += layer.size();
    sinks += static_cast<std::size_t>(
        std::ranges::count_if(layer, [](double share) { return share > 0.5; }));
  }
  const std::string of_sinks = fmt::format("{}", sinks), of_heads = fmt::format("{}", heads);
  return head_map_plot(map_named("sink map", r.sink, {{"sinks", of_sinks}, {"heads", of_heads}}));
}

Table heads_table(const Inspection& r) {
  const std::size_t last = r.n.size() - 1;
  Table table;
  table.caption = fmt::format("Every head at n = {:.0f}", r.n[last]);
  table.columns = {"head",      "entropy",       "of ln n", "effective keys",
                   "max logit", "gradient mass", ""};
  for (std::size_t layer = 0; layer < r.entropy.size(); ++layer) {
    TableGroup group{fmt::format("layer {}", layer), {}};
    for (std::size_t head = 0; head < r.entropy[layer].size(); ++head) {
      const double entropy = r.entropy[layer][head][last], spread = r.spread[layer][head][last];
      Text entropy_text(fmt::format("{:.3f}", entropy));
      if (!std::isnan(spread)) entropy_text.small(fmt::format("± {:.3f}", spread));
      const char* remark = r.collapsed.contains({layer, head}) ? "collapsed"
                           : r.blurred.contains({layer, head}) ? "blurred"
                                                               : "";
      group.rows.push_back(
          {fmt::format("{}", head),
           {entropy_text, fmt::format("{:.2f}", share_of_largest(entropy, r.n[last])),
            fmt::format("{:.1f}", r.keys[layer][head][last]),
            fmt::format("{:.2f}", r.max_logit[layer][head][last]),
            fmt::format("{:.4f}", r.mass[layer][head][last]), remark}});
    }
    table.groups.push_back(std::move(group));
  }
  return table;
}

// Chart of a few layers from first to last, over lengths or positions.
LineChart curves(const Column& x, const Layers& values, LineChart chart) {
  const std::size_t layers = values.size(), count = std::min<std::size_t>(layers, 5);
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i)
    chosen.insert(count == 1 ? 0 : i * (layers - 1) / (count - 1));
  for (const std::size_t layer : chosen) {
    Series series{fmt::format("layer {}", layer), x, {}};
    for (std::size_t bin = 0; bin < x.size(); ++bin)
      series.y.push_back(mean_over(values[layer], bin));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_largest_entropy(LineChart& chart, const Column& n) {
  Series largest{.name = "ln n", .x = n, .y = {}, .reference = true, .colour = kNeutral};
  for (const double keys : n) largest.y.push_back(std::log(keys));
  chart.series.push_back(std::move(largest));
}

LineChart entropy_curves(const Inspection& r) {
  LineChart chart = curves(r.n, r.entropy, chart_named("inspected entropy"));
  add_largest_entropy(chart, r.n);
  return chart;
}

// Chart of the weight that keys receive, with its mean at the first key and at later ones.
LineChart received_by_position(const Inspection& r) {
  Column means;
  for (std::size_t bin = 0; bin < r.positions.size(); ++bin) {
    Heads heads;
    for (const Heads& layer : r.received) heads.insert(heads.end(), layer.begin(), layer.end());
    means.push_back(mean_over(heads, bin));
  }
  const std::string first = fmt::format("{:.1f}", means.front());
  Column later(means.begin() + 1, means.end());
  std::ranges::sort(later);
  const std::string median =
      later.empty() ? "none" : fmt::format("{:.2f}", later[later.size() / 2]);
  return curves(r.positions, r.received,
                chart_named("received by position", {{"first", first}, {"later", median}}));
}

// Chart of the mean over all heads, one line for each inspection's scale.
LineChart entropy_by_scale(const std::vector<Inspection>& inspections) {
  LineChart chart = chart_named("demo entropy");
  for (const Inspection& r : inspections) {
    Series series{.name = Text().code(r.rule), .x = r.n, .y = {}};
    for (std::size_t bin = 0; bin < r.n.size(); ++bin) {
      Heads heads;
      for (const Heads& layer : r.entropy) heads.insert(heads.end(), layer.begin(), layer.end());
      series.y.push_back(mean_over(heads, bin));
    }
    chart.series.push_back(std::move(series));
  }
  add_largest_entropy(chart, inspections.front().n);
  return chart;
}

}  // namespace

std::string inspection_report(const json& result) {
  const Inspection r = read_as("inspection", [&] { return read(result); });
  Page page("Attention of " + r.model,
            fmt::format("{} layers, {} texts, {} tokens", r.entropy.size(), r.texts, r.tokens));
  Table facts;
  facts.groups = {{{},
                   {{"current rule", {Text().code(r.rule)}},
                    {"suggested rule, for constant entropy",
                     {r.suggestion.empty() ? Text("too few lengths") : Text().code(r.suggestion)}},
                    {"collapsed heads, entropy near 0", {fmt::format("{}", r.collapsed.size())}},
                    {"blurred heads, entropy near ln n", {fmt::format("{}", r.blurred.size())}}}}};
  page.table(facts).markup(part_of(assets::prose_html, "suggestion"));
  page.heading("Heads").plot(share_map(r)).plot(growth_map(r));
  if (!r.sink.empty()) page.plot(sink_map(r)).plot(line_plot(received_by_position(r)));
  page.heading("Length").plot(line_plot(entropy_curves(r)));
  for (const auto& [values, name] : {std::pair{&Inspection::keys, "effective keys"},
                                     {&Inspection::max_logit, "largest logit"},
                                     {&Inspection::mass, "inspected mass"},
                                     {&Inspection::distance, "inspected distance"}})
    page.plot(line_plot(curves(r.n, r.*values, chart_named(name))));
  page.heading("Numbers").table(heads_table(r));
  return page.html();
}

void add_scales(Page& page, const json& documents) {
  std::vector<Inspection> inspections;
  for (const json& document : documents) inspections.push_back(read(document));
  if (inspections.empty()) throw Error("[inspection_report] there must be an inspection; got none");
  if (!inspections.front().sink.empty()) page.plot(sink_map(inspections.front()));
  page.plot(line_plot(entropy_by_scale(inspections)));
  for (const Inspection& r : inspections) page.plot(growth_map(r, " under " + r.rule));
}

}  // namespace isentrope::report
