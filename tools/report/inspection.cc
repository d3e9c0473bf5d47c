// Page of isentrope inspect.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <vector>

#include "isentrope/error.h"
#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using nlohmann::json;
using Column = std::vector<double>;  // by bin
using Heads = std::vector<Column>;   // of one layer
using Layers = std::vector<Heads>;
using Places = std::set<std::pair<std::size_t, std::size_t>>;  // layers and heads

constexpr const char* kStatistics[] = {"entropy", "effective_keys", "max_logit", "gradient_mass",
                                       "distance"};

struct Inspection {
  std::string model, rule, suggestion;
  std::int64_t texts, tokens;
  Column n;
  Layers n_of_head{};                         // mean n by bin
  std::map<std::string_view, Layers> mean{};  // by statistic
  Layers spread{};                            // of entropy
  Places collapsed{}, blurred{};
  HeadValues sink{};   // share of the weight on the first key; empty in older documents
  Column positions{};  // of keys, and the weight that they receive
  Layers received{};
};

// Reads [layers][heads][bins], with the heads of `like`. Throws Error for other sizes.
Layers layers_of(const json& values, const std::string& name, std::size_t bins,
                 const Layers* like) {
  const std::string place = "[inspection_report] " + name;
  const auto layers = numbers_of<Layers>(values);
  for (const Heads& heads : layers) {
    for (const Column& column : heads) require_count(place, "bins", bins, column.size());
  }
  if (layers.empty() || layers.front().empty())
    throw Error(place + " must have layers and heads; got none");
  if (like != nullptr) require_heads_of(place, *like, layers);
  return layers;
}

Inspection read(const json& result) {
  require_version(result, "inspection", 2);
  const json &rule = result.at("rule").at("rule"), &suggestion = result.at("suggestion");
  Inspection r{.model = result.at("model"),
               .rule = rule.is_null() ? "not known" : rule,
               .suggestion = suggestion.is_null() ? "" : suggestion,
               .texts = result.at("texts"),
               .tokens = result.at("tokens"),
               .n = result.at("n")};
  if (r.n.empty()) throw Error("[inspection_report] n must have a bin; got none");
  const Layers* entropy = nullptr;
  for (const char* name : kStatistics) {
    r.mean[name] =
        layers_of(result.at("mean").at(name), std::string("mean.") + name, r.n.size(), entropy);
    entropy = &r.mean.at("entropy");
  }
  if (result.contains("n_of_head"))
    r.n_of_head = layers_of(result.at("n_of_head"), "n_of_head", r.n.size(), entropy);
  else  // an older document
    for (const Heads& heads : *entropy) r.n_of_head.emplace_back(heads.size(), r.n);
  r.spread = layers_of(result.at("spread").at("entropy"), "spread.entropy", r.n.size(), entropy);
  if (result.contains("sink")) {
    r.sink = numbers_of<HeadValues>(result.at("sink"));
    require_heads_of("[inspection_report] sink", *entropy, r.sink);
    const json& received = result.at("received");
    r.positions = received.at("positions").get<Column>();
    if (r.positions.empty())
      throw Error("[inspection_report] received.positions must have a bin; got none");
    r.received = layers_of(received.at("mean"), "received.mean", r.positions.size(), entropy);
  }
  r.collapsed = result.at("collapsed").get<Places>();
  r.blurred = result.at("blurred").get<Places>();
  return r;
}

// Returns the mean over heads that are not NaN, by bin.
Column mean_over(const auto& heads, std::size_t bins) {
  Column means;
  for (std::size_t bin = 0; bin < bins; ++bin)
    means.push_back(
        mean_of(heads | std::views::transform([bin](const Column& head) { return head[bin]; })));
  return means;
}

// Returns the number of each head, of its entropy and n.
HeadValues each_head(const Inspection& r, const auto& number) {
  HeadValues values;
  const Layers& entropy = r.mean.at("entropy");
  for (std::size_t layer = 0; layer < entropy.size(); ++layer) {
    auto& of_layer = values.emplace_back();
    for (std::size_t head = 0; head < entropy[layer].size(); ++head)
      of_layer.push_back(number(entropy[layer][head], r.n_of_head[layer][head]));
  }
  return values;
}

// Returns the bin of a head's longest rows: with a window not the last one.
std::size_t longest(const Column& entropy) {
  std::size_t bin = entropy.size() - 1;
  while (bin > 0 && std::isnan(entropy[bin])) --bin;
  return bin;
}

double share_of_largest(double entropy, double n) { return n > 1 ? entropy / std::log(n) : 0; }

// Map of entropy / ln n, the fraction of its maximum, at the longest rows.
Plot share_map(const Inspection& r) {
  const auto share = [](const Column& entropy, const Column& n) {
    return share_of_largest(entropy[longest(entropy)], n[longest(entropy)]);
  };
  return head_map_plot(map_named("entropy share map", each_head(r, share)));
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
Plot growth_map(const Inspection& r, const std::string& under = "") {
  return head_map_plot(map_named("entropy growth map", each_head(r, slope_of), {{"under", under}}));
}

// Map of the share of the first key.
Plot sink_map(const Inspection& r) {
  std::size_t heads = 0, sinks = 0;
  for (const double share : r.sink | std::views::join) {
    ++heads;
    sinks += share > 0.5;
  }
  return head_map_plot(map_named(
      "sink map", r.sink, {{"sinks", std::to_string(sinks)}, {"heads", std::to_string(heads)}}));
}

Table heads_table(const Inspection& r) {
  Table table{.caption = "Every head at its longest rows",
              .columns = {"head", "n", "entropy", "of ln n", "effective keys", "max logit",
                          "gradient mass", ""},
              .groups = {}};
  const Layers& entropies = r.mean.at("entropy");
  for (std::size_t layer = 0; layer < entropies.size(); ++layer) {
    table.groups.push_back({fmt::format("layer {}", layer), {}});
    for (std::size_t head = 0; head < entropies[layer].size(); ++head) {
      const std::size_t last = longest(entropies[layer][head]);
      const auto at_last = [&](const char* name) { return r.mean.at(name)[layer][head][last]; };
      const double entropy = at_last("entropy"), spread = r.spread[layer][head][last],
                   n = r.n_of_head[layer][head][last];
      Text entropy_text(fmt::format("{:.3f}", entropy));
      if (!std::isnan(spread)) entropy_text.small(fmt::format("± {:.3f}", spread));
      const char* remark = r.collapsed.contains({layer, head}) ? "collapsed"
                           : r.blurred.contains({layer, head}) ? "blurred"
                                                               : "";
      table.add(std::to_string(head), {fmt::format("{:.0f}", n), entropy_text,
                                       fmt::format("{:.2f}", share_of_largest(entropy, n)),
                                       fmt::format("{:.1f}", at_last("effective_keys")),
                                       fmt::format("{:.2f}", at_last("max_logit")),
                                       fmt::format("{:.4f}", at_last("gradient_mass")), remark});
    }
  }
  return table;
}

// Chart of a few layers from first to last, over lengths or positions.
LineChart curves(const Column& x, const Layers& values, LineChart chart) {
  const std::size_t layers = values.size(), count = std::min<std::size_t>(layers, 5);
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i)
    chosen.insert(count == 1 ? 0 : i * (layers - 1) / (count - 1));
  for (const std::size_t layer : chosen)
    chart.series.push_back({fmt::format("layer {}", layer), x, mean_over(values[layer], x.size())});
  return chart;
}

void add_largest_entropy(LineChart& chart, const Column& n) {
  const auto largest = [](double keys) { return std::log(keys); };
  chart.series.push_back(curve("ln n", n, largest, true));
  chart.series.back().colour = kNeutral;
}

// Chart of the weight that keys receive, with its mean at the first key and at later ones.
LineChart received_by_position(const Inspection& r) {
  const Column means = mean_over(r.received | std::views::join, r.positions.size());
  Column later(means.begin() + 1, means.end());
  std::ranges::sort(later);
  const std::string median =
      later.empty() ? "none" : fmt::format("{:.2f}", later[later.size() / 2]);
  return curves(r.positions, r.received,
                chart_named("received by position",
                            {{"first", fmt::format("{:.1f}", means.front())}, {"later", median}}));
}

// Chart of the mean over all heads, one line for each inspection's scale.
LineChart entropy_by_scale(const std::vector<Inspection>& inspections) {
  LineChart chart = chart_named("demo entropy");
  for (const Inspection& r : inspections)
    chart.series.push_back(
        {Text().code(r.rule), r.n, mean_over(r.mean.at("entropy") | std::views::join, r.n.size())});
  add_largest_entropy(chart, inspections.front().n);
  return chart;
}

}  // namespace

std::string inspection_report(const json& result) {
  const Inspection r = read_as("inspection", [&] { return read(result); });
  const Layers& entropy = r.mean.at("entropy");
  Page page("Attention of " + r.model,
            fmt::format("{} layers, {} texts, {} tokens", entropy.size(), r.texts, r.tokens));
  Table facts;
  facts.add("current rule", {Text().code(r.rule)});
  facts.add("suggested rule, for constant entropy",
            {r.suggestion.empty() ? Text("too few lengths") : Text().code(r.suggestion)});
  facts.add("collapsed heads, entropy near 0", {std::to_string(r.collapsed.size())});
  facts.add("blurred heads, entropy near ln n", {std::to_string(r.blurred.size())});
  page.table(facts).says("suggestion");
  page.heading("Heads").plot(share_map(r)).plot(growth_map(r));
  if (!r.sink.empty()) page.plot(sink_map(r)).plot(line_plot(received_by_position(r)));
  LineChart entropies = curves(r.n, entropy, chart_named("inspected entropy"));
  add_largest_entropy(entropies, r.n);
  page.heading("Length").plot(line_plot(entropies));
  for (const char* name : {"effective_keys", "max_logit", "gradient_mass", "distance"})
    page.plot(
        line_plot(curves(r.n, r.mean.at(name), chart_named(std::string("inspected ") + name))));
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
