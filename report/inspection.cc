#include "report/inspection.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "isentrope/error.h"
#include "report/head_map.h"
#include "report/line_chart.h"
#include "report/numbers.h"
#include "report/page.h"

namespace isentrope::report {
namespace {

using nlohmann::json;
using Column = std::vector<double>;  // by bin
using Heads = std::vector<Column>;   // of a layer
using Layers = std::vector<Heads>;

// [layers][heads][bins], and every head with as many bins as there are.
Layers layers_of(const json& values, std::size_t bins, const char* name) {
  Layers layers;
  for (const json& layer : values) {
    Heads& heads = layers.emplace_back();
    for (const json& head : layer) {
      Column& column = heads.emplace_back();
      for (const json& value : head) column.push_back(number_of(value));
      if (column.size() != bins) {
        throw Error(fmt::format("[inspection_report] {} must have {} bins; got {}", name, bins,
                                column.size()));
      }
    }
  }
  if (layers.empty() || layers.front().empty()) {
    throw Error(fmt::format("[inspection_report] {} must have layers and heads; got none", name));
  }
  return layers;
}

void require_heads_of(const Layers& entropy, const Layers& layers, const char* name) {
  const auto same = [](const Heads& a, const Heads& b) { return a.size() == b.size(); };
  if (std::ranges::equal(entropy, layers, same)) return;
  throw Error(fmt::format(
      "[inspection_report] {} must have the layers and heads of mean.entropy; got others", name));
}

struct Inspection {
  std::string model, rule, suggestion;
  std::int64_t texts, tokens;
  Column n;
  Layers entropy, spread, keys, max_logit, mass, distance;
  std::set<std::pair<std::size_t, std::size_t>> collapsed, blurred;
};

std::set<std::pair<std::size_t, std::size_t>> places(const json& list) {
  std::set<std::pair<std::size_t, std::size_t>> result;
  for (const json& place : list)
    result.emplace(place.at(0).get<std::size_t>(), place.at(1).get<std::size_t>());
  return result;
}

Inspection read(const json& result) {
  try {
    if (result.at("version") != 2)
      throw Error("[inspection_report] version must be 2; got " + result.at("version").dump());
    Inspection r;
    r.model = result.at("model");
    r.rule = result.at("rule").at("rule");
    r.suggestion =
        result.at("suggestion").is_null() ? "" : result.at("suggestion").get<std::string>();
    r.texts = result.at("texts");
    r.tokens = result.at("tokens");
    for (const json& n : result.at("n")) r.n.push_back(n.get<double>());
    if (r.n.empty()) throw Error("[inspection_report] n must have a bin; got none");
    const json& mean = result.at("mean");
    r.entropy = layers_of(mean.at("entropy"), r.n.size(), "mean.entropy");
    r.keys = layers_of(mean.at("effective_keys"), r.n.size(), "mean.effective_keys");
    r.max_logit = layers_of(mean.at("max_logit"), r.n.size(), "mean.max_logit");
    r.mass = layers_of(mean.at("gradient_mass"), r.n.size(), "mean.gradient_mass");
    r.distance = layers_of(mean.at("distance"), r.n.size(), "mean.distance");
    r.spread = layers_of(result.at("spread").at("entropy"), r.n.size(), "spread.entropy");
    require_heads_of(r.entropy, r.spread, "spread.entropy");
    require_heads_of(r.entropy, r.keys, "mean.effective_keys");
    require_heads_of(r.entropy, r.max_logit, "mean.max_logit");
    require_heads_of(r.entropy, r.mass, "mean.gradient_mass");
    require_heads_of(r.entropy, r.distance, "mean.distance");
    r.collapsed = places(result.at("collapsed"));
    r.blurred = places(result.at("blurred"));
    return r;
  } catch (const json::exception& error) {
    throw Error(fmt::format("[inspection_report] the document must be an inspection; got {}",
                            error.what()));
  }
}

// Of the heads that have a number there; NaN when none has.
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

// Colour: entropy over ln n, the share of the largest it could be, at the longest rows.
Plot share_map(const Inspection& r) {
  const std::size_t last = r.n.size() - 1;
  HeadMap map{.title = fmt::format("Entropy at n = {:.0f}", r.n[last]),
              .caption =
                  "Each cell is a head. Dark: the row looks at few keys. Bright: it averages "
                  "over all of them.",
              .quantity = "entropy / ln n",
              .scheme = "viridis",
              .lowest = 0,
              .highest = 1,
              .values = {}};
  for (const Heads& heads : r.entropy) {
    auto& layer = map.values.emplace_back();
    for (const Column& head : heads) layer.push_back(share_of_largest(head[last], r.n[last]));
  }
  return head_map_plot(map);
}

// The slope of entropy in ln n, by least squares over the bins of at least 8 keys: 0 for a head
// that looks at as many keys in a long row as in a short one, 1 for one that averages over all.
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

Plot slope_map(const Inspection& r) {
  HeadMap map{.title = "How entropy grows with length",
              .caption =
                  "dH / d ln n of each head. 0: as many keys in long rows as in short ones. "
                  "1: all of them, always.",
              .quantity = "dH / d ln n",
              .scheme = "blueorange",
              .lowest = -1,
              .highest = 1,
              .values = {}};
  for (const Heads& heads : r.entropy) {
    auto& layer = map.values.emplace_back();
    for (const Column& head : heads) layer.push_back(slope_of(head, r.n));
  }
  return head_map_plot(map);
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
      Text shown(fmt::format("{:.3f}", entropy));
      if (!std::isnan(spread)) shown.small(fmt::format("± {:.3f}", spread));
      const char* remark = r.collapsed.contains({layer, head}) ? "collapsed"
                           : r.blurred.contains({layer, head}) ? "blurred"
                                                               : "";
      group.rows.push_back({fmt::format("{}", head),
                            {shown, fmt::format("{:.2f}", share_of_largest(entropy, r.n[last])),
                             fmt::format("{:.1f}", r.keys[layer][head][last]),
                             fmt::format("{:.2f}", r.max_logit[layer][head][last]),
                             fmt::format("{:.4f}", r.mass[layer][head][last]), remark}});
    }
    table.groups.push_back(std::move(group));
  }
  return table;
}

// The mean of all layers, and a few layers from first to last.
LineChart curves(const Inspection& r, const Layers& values, const char* title, const char* label) {
  LineChart chart;
  chart.title = title;
  chart.caption = "Mean over heads; the texts are averaged.";
  chart.x_label = "keys the row sees, n";
  chart.y_label = label;
  chart.x_axis = Axis::log2;
  const std::size_t layers = values.size(), shown = std::min<std::size_t>(layers, 5);
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < shown; ++i)
    chosen.insert(shown == 1 ? 0 : i * (layers - 1) / (shown - 1));
  for (const std::size_t layer : chosen) {
    Series series{fmt::format("layer {}", layer), r.n, {}};
    for (std::size_t bin = 0; bin < r.n.size(); ++bin)
      series.y.push_back(mean_over(values[layer], bin));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

LineChart entropy_curves(const Inspection& r) {
  LineChart chart = curves(r, r.entropy, "Entropy against length", "entropy, nats");
  Series largest{"ln n", r.n, {}};
  for (const double n : r.n) largest.y.push_back(std::log(n));
  largest.reference = true;
  largest.colour = kNeutral;
  chart.series.push_back(std::move(largest));
  return chart;
}

}  // namespace

std::string inspection_report(const json& result) {
  const Inspection r = read(result);
  Page page("Attention of " + r.model,
            fmt::format("{} layers, {} texts, {} tokens", r.entropy.size(), r.texts, r.tokens));
  Table facts;
  facts.groups = {{{},
                   {{"rule today", {Text().code(r.rule)}},
                    {"for constant entropy",
                     {r.suggestion.empty() ? Text("too few lengths") : Text().code(r.suggestion)}},
                    {"collapsed heads, entropy near 0", {fmt::format("{}", r.collapsed.size())}},
                    {"blurred heads, entropy near ln n", {fmt::format("{}", r.blurred.size())}}}}};
  page.table(facts);
  page.note(
      "The suggested rule holds the entropy of the longest rows, by one Newton step from the "
      "measured variance. "
      "It is where training or calibration may start: a trained model need not get better by it.");
  page.heading("Heads").plot(share_map(r)).plot(slope_map(r));
  page.heading("Length").plot(line_plot(entropy_curves(r)));
  // One layer of averaging heads would hide all others on a linear axis.
  LineChart keys = curves(r, r.keys, "Effective keys against length", "1 / sum p^2");
  keys.y_axis = Axis::log10;
  page.plot(line_plot(keys));
  page.plot(line_plot(curves(r, r.max_logit, "Largest logit against length", "max z")));
  page.plot(line_plot(curves(r, r.mass, "Gradient mass against length", "lambda (1 - sum p^2)")));
  page.plot(line_plot(curves(r, r.distance, "Attended distance against length", "keys")));
  page.heading("Numbers").table(heads_table(r));
  return page.html();
}

}  // namespace isentrope::report
