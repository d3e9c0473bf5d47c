// Page of make bench.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isentrope/error.h"
#include "tools/report/document.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

constexpr const char* kOurs = "isentrope";

double giga(const json& system) { return system.at("rate").get<double>() / 1e9; }

std::string percent(const json& value) {
  return value.is_null() ? "–" : decimal(100 * value.get<double>(), 1) + " %";
}

// Returns "2.3e‑07" with a non-breaking hyphen.
std::string error_of(const json& system) {
  std::string text = fmt::format("{:.1e}", system.at("error").get<double>());
  if (const auto sign = text.find('-'); sign != text.npos) text.replace(sign, 1, "\u2011");
  return text;
}

// Returns one member of each object, as a JSON list for messages.
std::string members_in(const json& objects, const char* name) {
  json list = json::array();
  for (const json& object : objects) list.push_back(object.at(name));
  return list.dump();
}

// Returns the results of one system. Throws Error if there are none.
const json& system_of(const json& row, std::string_view name) {
  for (const json& system : row.at("systems")) {
    if (system.at("name") == name) return system;
  }
  throw Error(fmt::format("[bench_report] every row must have the system {}; got {}", name,
                          members_in(row.at("systems"), "name")));
}

Table table_of(const json& run) {
  Table table{{},
              {"work", "isentrope", "best peer", "ratio", "of the limit", "error", "peer's error",
               "statistics cost"},
              {{}}};
  for (const json& row : run.at("rows")) {
    const std::string peer = row.at("best_peer");
    const json &isentrope = system_of(row, kOurs), &best = system_of(row, peer);
    table.add(row.at("work").at("name").get<std::string>(),
              {decimal(giga(isentrope), 1), Text(decimal(giga(best), 1)).small(peer),
               decimal(row.at("ratio"), 2), percent(row.at("of_limit")), error_of(isentrope),
               error_of(best), percent(row.at("statistics_cost"))});
  }
  return table;
}

Series series_of(const std::string& name, const std::map<double, double>& points) {
  Series series{name, {}, {}};
  for (const auto& [x, y] : points) {
    series.x.push_back(x);
    series.y.push_back(y);
  }
  return series;
}

// Returns the description of a row without its length.
std::string family_of(const json& work) {
  return fmt::format("{}, d = {}, {}, {}", work.at("kind").get<std::string>(),
                     work.at("dim").get<int>(), work.at("dtype").get<std::string>(),
                     work.at("causal").get<bool>() ? "causal" : "full");
}

// Returns one chart for each family measured at several lengths, with a line for each system.
std::vector<LineChart> charts_against_length(const json& run) {
  std::map<std::string, std::map<std::string, std::map<double, double>>> rates;
  std::map<std::string, int> colours = {{kOurs, 0}};
  for (const json& row : run.at("rows")) {
    for (const json& system : row.at("systems")) {
      const std::string name = system.at("name");
      colours.emplace(name, static_cast<int>(colours.size()));
      rates[family_of(row.at("work"))][name][row.at("work").at("keys")] = giga(system);
    }
  }
  std::vector<LineChart> charts;
  for (const auto& [family, systems] : rates) {
    const auto isentrope = systems.find(kOurs);
    if (isentrope == systems.end() || isentrope->second.size() < 3) continue;
    const char* unit = family.starts_with("decode") ? "GB/s" : "GFLOP/s";
    LineChart& chart =
        charts.emplace_back(chart_named("rates", {{"family", family}, {"unit", unit}}));
    for (const auto& [name, points] : systems) {
      chart.series.push_back(series_of(name, points));
      chart.series.back().colour = colours.at(name);
    }
  }
  return charts;
}

// Returns the operations for each byte of queries, keys, values and output, each moved once.
double intensity_of(const json& row) {
  const json& work = row.at("work");
  const double heads = work.at("heads"), listed = work.at("kv_heads");
  const double key_heads = listed > 0 ? listed : heads;
  const double elements =
      2 * work.at("batch").get<double>() * work.at("dim").get<double>() *
      (heads * work.at("queries").get<double>() + key_heads * work.at("keys").get<double>());
  return row.at("flops").get<double>() / (elements * (work.at("dtype") == "f32" ? 4 : 2));
}

// Chart of the speed that memory bandwidth allows, up to the arithmetic peak.
LineChart roofline(const json& run, const json& limits) {
  const json* target = nullptr;
  for (const json& limit : limits.at("targets")) {
    if (limit.at("target") == run.at("target")) target = &limit;
  }
  if (target == nullptr)
    throw Error(fmt::format("[bench_report] limits must have the target {}; got {}",
                            run.at("target").dump(), members_in(limits.at("targets"), "target")));
  const double memory = limits.at("memory_read").get<double>() / 1e9;
  LineChart chart = chart_named("roofline");
  std::vector<double> intensities;
  for (double x = 0.25; x < 8192; x *= 2) intensities.push_back(x);
  for (const auto& [dtype, flops] : {std::pair{"f32", "flops"}, {"bf16", "bf16_flops"}}) {
    std::map<double, double> rates;
    for (const json& row : run.at("rows")) {
      if (row.at("work").at("dtype") != dtype || row.at("work").at("kind") == "gradient") continue;
      const double seconds = system_of(row, kOurs).at("seconds");
      rates[intensity_of(row)] = row.at("flops").get<double>() / seconds / 1e9;
    }
    const double peak = target->at(flops).get<double>() / 1e9;
    if (peak > 0)
      chart.series.push_back(curve(
          std::string("limit, ") + dtype, intensities,
          [&](double x) { return std::min(peak, x * memory); }, true));
    chart.series.push_back(series_of(dtype, rates));
  }
  return chart;
}

// Ratios of training steps with a monitor or QK-clip at every step.
Table watched_steps(const json& steps) {
  Table table{
      {}, {"watched by", "attention", "over a step that nothing watches", "quartiles"}, {{}}};
  for (const json& row : steps.at("rows")) {
    const json& quartiles = row.at("quartiles");
    table.add(row.at("watcher").get<std::string>(),
              {row.at("function").get<std::string>(), decimal(row.at("ratio"), 3),
               decimal(quartiles.at(0), 3) + " to " + decimal(quartiles.at(1), 3)});
  }
  return table;
}

std::string page_of(const json& result) {
  const std::string machine = result.at("machine"), date = result.at("date");
  Page page("Attention on the CPU", machine + ", " + date);
  page.says("bench");
  for (const json& run : result.at("runs")) {
    const int threads = run.at("threads");
    page.heading(threads == 1 ? std::string("One thread") : fmt::format("{} threads", threads));
    page.table(table_of(run));
    for (const LineChart& chart : charts_against_length(run)) page.plot(line_plot(chart));
    if (threads == 1) page.plot(line_plot(roofline(run, result.at("limits"))));
  }
  if (result.contains("training_step"))
    page.heading("A training step that is watched")
        .table(watched_steps(result.at("training_step")));
  return page.html();
}

}  // namespace

std::string bench_report(const json& result) {
  return read_as("bench", [&] { return page_of(result); });
}

}  // namespace isentrope::report
