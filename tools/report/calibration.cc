#include "tools/report/calibration.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tools/report/assets.h"
#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/numbers.h"
#include "tools/report/page.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

HeadValues values_of(const json& layers) {
  HeadValues values;
  for (const json& layer : layers) {
    auto& heads = values.emplace_back();
    for (const json& value : layer) heads.push_back(number_of(value));
  }
  return values;
}

HeadValues difference(const HeadValues& a, const HeadValues& b) {
  require_heads_of("[report] entropy", b, a);
  HeadValues result = a;
  for (std::size_t layer = 0; layer < result.size(); ++layer) {
    for (std::size_t head = 0; head < result[layer].size(); ++head) {
      result[layer][head] -= b[layer][head];
    }
  }
  return result;
}

std::string positions(const json& row) {
  return from_to(row.at("from").get<double>(), row.at("to").get<double>());
}

// Table of differences to the first method, with 95 % intervals and standard errors.
Table differences(const json& nll) {
  Table table;
  table.caption = Text::markup(part_of(assets::prose_html, "differences"));
  table.columns = {"positions", "nats", "difference", "95 % over passages",
                   "standard error over blocks"};
  std::map<std::string, std::size_t> group_of;
  for (const json& row : nll) {
    // Results of earlier versions have no intervals.
    const auto end = [&](const char* name) { return number_of(row.value(name, json())); };
    const auto method = row.at("method").get<std::string>();
    const auto [at, is_new] = group_of.try_emplace(method, table.groups.size());
    if (is_new) table.groups.push_back({Text().code(method), {}});
    table.groups[at->second].rows.push_back(
        {positions(row),
         {decimal(row.at("mean").get<double>(), 4),
          signed_decimal(row.at("difference").get<double>(), 4),
          interval(end("low"), end("high"), 4), decimal(number_of(row.at("se")), 4)}});
  }
  return table;
}

// Chart of each method's difference against position, with bars of two standard errors.
LineChart difference_chart(const json& nll) {
  LineChart chart = chart_named("loss difference");
  std::map<std::string, std::size_t> series_of;
  for (const json& row : nll) {
    const auto method = row.at("method").get<std::string>();
    const auto [at, is_new] = series_of.try_emplace(method, chart.series.size());
    if (is_new) chart.series.push_back({method, {}, {}});
    Series& series = chart.series[at->second];
    series.x.push_back(row.at("to").get<double>());
    series.y.push_back(row.at("difference").get<double>());
    const double error = number_of(row.at("se"));
    series.spread.push_back(std::isnan(error) ? 0 : 2 * error);
  }
  return chart;
}

Plot change_map(const char* title, HeadValues change, double reach) {
  HeadMap map = map_named("entropy change map", std::move(change), {{"title", title}});
  map.lowest = -reach;
  map.highest = reach;
  return head_map_plot(map);
}

double largest_size(const HeadValues& values) {
  double most = 0;
  for (const auto& layer : values) {
    for (const double value : layer)
      most = std::isnan(value) ? most : std::max(most, std::abs(value));
  }
  return most;
}

// Returns the values of heads of one kind, NaN for others.
HeadValues only(const std::string& kind, const json& kinds, HeadValues values) {
  for (std::size_t layer = 0; layer < values.size(); ++layer) {
    for (std::size_t head = 0; head < values[layer].size(); ++head) {
      if (kinds.at(layer).at(head) != kind)
        values[layer][head] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  return values;
}

// Table of the number of heads of each kind, and the change of their entropy by stretch and gain.
Table kinds(const json& heads, const HeadValues& stretched, const HeadValues& calibrated) {
  const json& kind_of = heads.at("kind");
  std::map<std::string, int> counts;
  for (const json& layer : kind_of) {
    for (const json& kind : layer) ++counts[kind.get<std::string>()];
  }
  Table table;
  table.caption = Text::markup(part_of(assets::prose_html, "kinds"));
  table.columns = {"kind", "heads", "dH/d ln n", "stretched", "stretched, with the gain"};
  auto& rows = table.groups.emplace_back().rows;
  for (const auto& [kind, count] : counts) {
    const auto mean = [&](const HeadValues& values) {
      return signed_decimal(mean_of(only(kind, kind_of, values)), 3);
    };
    rows.push_back(
        {kind,
         {compact(count), mean(values_of(heads.at("slope"))), mean(stretched), mean(calibrated)}});
  }
  return table;
}

Text verdict(const json& result) {
  const json& nll = result.at("nll");
  const char* verdict = nll.empty()                                 ? "not judged"
                        : result.at("kept").get<bool>()             ? "kept"
                        : nll.front().at("passages").get<int>() < 3 ? "too few"
                                                                    : "not kept";
  return Text::markup(part_of(assets::prose_html, verdict));
}

}  // namespace

void add_losses(Page& page, const json& nll) {
  page.plot(line_plot(difference_chart(nll))).table(differences(nll));
}

std::string calibration_report(const json& result) {
  return read_as("calibration", [&] {
    require_version(result, "calibration", 1);
    const json& entropy = result.at("entropy");
    const HeadValues before = values_of(entropy.at("before"));
    const HeadValues stretched = difference(values_of(entropy.at("stretched")), before);
    const HeadValues calibrated = difference(values_of(entropy.at("calibrated")), before);
    const double gain = mean_of(values_of(result.at("measured_log_gains")));
    const std::string stretch = result.at("rope").at("text");
    Page page("Calibration of " + result.value("model", "a model"),
              fmt::format("RoPE stretched by {}, trained on {} tokens", stretch,
                          compact(result.at("trained_length").get<double>())));
    const json& rule = result.at("rule");
    Table facts;
    facts.groups = {
        {{},
         {{"measured gain", {fmt::format("e^{}", decimal(gain, 4))}},
          {"verdict", {verdict(result)}},
          {"rule",
           {Text().code(rule.is_string() ? rule.get<std::string>() : "one for each layer")}},
          {"mean entropy without the stretch", {decimal(mean_of(before), 3)}},
          {"change by the stretch", {signed_decimal(mean_of(stretched), 3)}},
          {"change by stretch and gain", {signed_decimal(mean_of(calibrated), 3)}}}}};
    page.table(facts);
    if (!result.at("nll").empty()) add_losses(page.heading("Loss"), result.at("nll"));
    HeadMap map = map_named("entropy map", before);
    map.highest = std::max(largest_size(before), 0.01);
    const double reach = std::max(largest_size(stretched), 0.01);
    page.heading("Heads")
        .plot(head_map_plot(map))
        .plot(change_map("Stretched", stretched, reach))
        .plot(change_map("Stretched, with the gain", calibrated, reach))
        .plot(head_map_plot(
            map_named("entropy slope map", values_of(result.at("heads").at("slope")))))
        .table(kinds(result.at("heads"), stretched, calibrated));
    return page.html();
  });
}

std::string evaluation_report(const json& result) {
  return read_as("evaluation", [&] {
    require_version(result, "evaluation", 1);
    Page page(
        "Loss by position of " + result.at("model").get<std::string>(),
        fmt::format("{} passages of {}, RoPE stretched by {}", result.at("passages").get<int>(),
                    result.at("text").get<std::string>(), result.at("rope").get<std::string>()));
    if (!result.at("nll").empty()) add_losses(page.heading("Loss"), result.at("nll"));
    if (!result.contains("retrieval")) return page.html();
    LineChart chart = chart_named("retrieval");
    for (const json& row : result.at("retrieval")) {
      chart.series.push_back({row.at("method").get<std::string>(),
                              row.at("distance").get<std::vector<double>>(),
                              row.at("nll").get<std::vector<double>>()});
    }
    page.heading("Retrieval").plot(line_plot(chart));
    return page.html();
  });
}

}  // namespace isentrope::report
