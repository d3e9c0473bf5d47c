// Pages of isentrope calibrate and isentrope evaluate.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>
#include <vector>

#include "tools/report/document.h"
#include "tools/report/head_map.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using analysis::number_in;
using nlohmann::json;

HeadValues difference(HeadValues a, const HeadValues& b) {
  require_heads_of("[report] entropy", b, a);
  for (std::size_t layer = 0; layer < a.size(); ++layer) {
    for (std::size_t head = 0; head < a[layer].size(); ++head) a[layer][head] -= b[layer][head];
  }
  return a;
}

// Table of differences to the first method, with 95 % intervals and standard errors.
Table differences(const json& nll) {
  Table table{.caption = prose_named("differences"),
              .columns = {"positions", "nats", "difference", "95 % over passages",
                          "standard error over blocks"},
              .groups = {}};
  std::map<std::string, std::size_t> group_of;
  for (const json& row : nll) {
    // Results of earlier versions have no intervals.
    const auto end = [&](const char* name) { return number_in(row.value(name, json())); };
    const std::string method = row.at("method");
    const auto [at, is_new] = group_of.try_emplace(method, table.groups.size());
    if (is_new) table.groups.push_back({Text().code(method), {}});
    table.groups[at->second].rows.push_back(
        {from_to(row.at("from"), row.at("to")),
         {decimal(row.at("mean"), 4), signed_decimal(row.at("difference"), 4),
          interval(end("low"), end("high"), 4), decimal(number_in(row.at("se")), 4)}});
  }
  return table;
}

// Chart of each method's difference against position, with bars of two standard errors.
LineChart difference_chart(const json& nll) {
  LineChart chart = chart_named("loss difference");
  std::map<std::string, std::size_t> series_of;
  for (const json& row : nll) {
    const std::string method = row.at("method");
    const auto [at, is_new] = series_of.try_emplace(method, chart.series.size());
    if (is_new) chart.series.push_back({method, {}, {}});
    Series& series = chart.series[at->second];
    series.x.push_back(row.at("to"));
    series.y.push_back(row.at("difference"));
    const double error = number_in(row.at("se"));
    series.spread.push_back(std::isnan(error) ? 0 : 2 * error);
  }
  return chart;
}

// Map whose colours reach from `lowest` to `highest`.
Plot map_within(HeadMap map, double lowest, double highest) {
  map.settings.update({{"lowest", lowest}, {"highest", highest}});
  return head_map_plot(map);
}

// Returns the largest magnitude, at least 0.01.
double largest_size(const HeadValues& values) {
  double most = 0.01;
  for (const double value : values | std::views::join) most = std::fmax(most, std::abs(value));
  return most;
}

// Returns the mean over heads of one kind.
double mean_of_kind(const std::string& kind, const json& kinds, const HeadValues& values) {
  std::vector<double> of_kind;
  for (std::size_t layer = 0; layer < values.size(); ++layer) {
    for (std::size_t head = 0; head < values[layer].size(); ++head) {
      if (kinds.at(layer).at(head) == kind) of_kind.push_back(values[layer][head]);
    }
  }
  return mean_of(of_kind);
}

// Table of the number of heads of each kind, and the change of their entropy by stretch and gain.
Table kinds(const json& heads, const HeadValues& stretched, const HeadValues& calibrated) {
  const json& kind_of = heads.at("kind");
  std::map<std::string, int> counts;
  for (const json& layer : kind_of) {
    for (const json& kind : layer) ++counts[kind.get<std::string>()];
  }
  Table table{.caption = prose_named("kinds"),
              .columns = {"kind", "heads", "dH/d ln n", "stretched", "stretched, with the gain"},
              .groups = {{}}};
  for (const auto& [kind, count] : counts) {
    const auto mean = [&](const HeadValues& values) {
      return signed_decimal(mean_of_kind(kind, kind_of, values), 3);
    };
    table.add(kind, {compact(count), mean(numbers_of<HeadValues>(heads.at("slope"))),
                     mean(stretched), mean(calibrated)});
  }
  return table;
}

Text verdict(const json& result) {
  const json& nll = result.at("nll");
  return prose_named(nll.empty()                                 ? "not judged"
                     : result.at("kept").get<bool>()             ? "kept"
                     : nll.front().at("passages").get<int>() < 3 ? "too few"
                                                                 : "not kept");
}

}  // namespace

void add_losses(Page& page, const json& nll) {
  page.plot(line_plot(difference_chart(nll))).table(differences(nll));
}

std::string calibration_report(const json& result) {
  return read_as("calibration", [&] {
    require_version(result, "calibration", 1);
    const json &entropy = result.at("entropy"), &rule = result.at("rule");
    const auto before = numbers_of<HeadValues>(entropy.at("before"));
    const auto change = [&](const char* name) {
      return difference(numbers_of<HeadValues>(entropy.at(name)), before);
    };
    const HeadValues stretched = change("stretched"), calibrated = change("calibrated");
    const auto mean = [](const HeadValues& values) { return mean_of(values | std::views::join); };
    const double gain = mean(numbers_of<HeadValues>(result.at("measured_log_gains")));
    Page page("Calibration of " + result.value("model", "a model"),
              fmt::format("RoPE stretched by {}, trained on {} tokens",
                          result.at("rope").at("text").get<std::string>(),
                          compact(result.at("trained_length"))));
    Table facts;
    facts.add("measured gain", {"e^" + decimal(gain, 4)});
    facts.add("verdict", {verdict(result)});
    facts.add("rule",
              {Text().code(rule.is_string() ? rule.get<std::string>() : "one for each layer")});
    facts.add("mean entropy without the stretch", {decimal(mean(before), 3)});
    facts.add("change by the stretch", {signed_decimal(mean(stretched), 3)});
    facts.add("change by stretch and gain", {signed_decimal(mean(calibrated), 3)});
    page.table(facts);
    if (!result.at("nll").empty()) add_losses(page.heading("Loss"), result.at("nll"));
    const double reach = largest_size(stretched);
    page.heading("Heads").plot(
        map_within(map_named("entropy map", before), 0, largest_size(before)));
    for (const auto& [title, values] :
         {std::pair{"Stretched", &stretched}, {"Stretched, with the gain", &calibrated}})
      page.plot(
          map_within(map_named("entropy change map", *values, {{"title", title}}), -reach, reach));
    page.plot(head_map_plot(map_named("entropy slope map",
                                      numbers_of<HeadValues>(result.at("heads").at("slope")))))
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
    for (const json& row : result.at("retrieval"))
      chart.series.push_back(
          {row.at("method").get<std::string>(), row.at("distance"), row.at("nll")});
    page.heading("Retrieval").plot(line_plot(chart));
    return page.html();
  });
}

}  // namespace isentrope::report
