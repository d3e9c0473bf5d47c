// Page of make demo.

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "isentrope/error.h"
#include "tools/analysis/study.h"
#include "tools/report/document.h"
#include "tools/report/extrapolation_charts.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using analysis::Lead;
using analysis::Study;
using nlohmann::json;

// Returns the text of a member, safe in markup.
std::string text_of(const json& object, const char* member) {
  return escape(object.at(member).get<std::string>());
}

void add_heads(Page& page, const json& heads) {
  const json& first = heads.at(0);
  page.says("demo heads", {{"model", text_of(first, "model")},
                           {"texts", first.at("texts").dump()},
                           {"tokens", first.at("tokens").dump()}});
  add_scales(page, heads);
}

void add_stretched(Page& page, const json& calibration, const json& heads) {
  page.says("demo stretched", {{"model", text_of(heads.at(0), "model")},
                               {"rope", text_of(calibration.at("rope"), "text")},
                               {"trained", compact(calibration.at("trained_length"))},
                               {"gain", decimal(calibration.at("log_gain"), 3)},
                               {"measured", compact(calibration.at("measured_on")) + " tokens"}});
  add_losses(page, calibration.at("nll"));
}

const std::vector<Lead>& leads_of_cell(const Study& study, std::string_view cell) {
  const auto at = std::ranges::find(study.cells, cell, &analysis::Cell::name);
  if (at == study.cells.end())
    throw Error("[demo_report] the study must have the cell that was trained; got none");
  return study.leads[static_cast<std::size_t>(at - study.cells.begin())];
}

const Lead* find_lead(const std::vector<Lead>& leads, const Lead& like) {
  const auto at = std::ranges::find_if(leads, [&](const Lead& lead) {
    return lead.rule == like.rule && lead.kind == like.kind && lead.metric == like.metric &&
           lead.length == like.length;
  });
  return at == leads.end() ? nullptr : &*at;
}

// Table of every lead of this run beside the study's lead for the same case.
Table side_by_side(const std::vector<Lead>& run_leads, const std::vector<Lead>& study_leads) {
  Table table{{}, {"length", "here", "in the study"}, {}};
  std::string last;
  for (const Lead& lead : run_leads) {
    if (lead.metric != "accuracy") continue;
    const Lead* other = find_lead(study_leads, lead);
    if (const std::string name = row_name(lead); name != last) {
      table.groups.push_back({Text().code(name), {}});
      last = name;
    }
    table.add(compact(static_cast<double>(lead.length)),
              {lead_words(lead), other ? lead_words(*other) : "–"});
  }
  return table;
}

std::int64_t most_seeds(const std::vector<Lead>& leads) {
  std::int64_t most = 0;
  for (const Lead& lead : leads) most = std::max<std::int64_t>(most, lead.seeds.pairs);
  return most;
}

void add_training(Page& page, const json& run, const json& study) {
  const Study small = analysis::read_study(run), large = analysis::read_study(study);
  const std::string& cell = small.cells.at(0).name;
  const std::vector<Lead>&run_leads = small.leads.at(0), &study_leads = leads_of_cell(large, cell);
  page.says("demo training", {{"cell", cell},
                              {"seeds", std::to_string(most_seeds(run_leads))},
                              {"studied", std::to_string(most_seeds(study_leads))}});
  page.code("isentrope extrapolate " + small.cells.at(0).options);
  LineChart chart = chart_named("demo lead");
  for (const auto& [name, leads] :
       {std::pair{"trained here", &run_leads}, {"the study", &study_leads}}) {
    for (const char* kind : {"trained", "near"}) {
      const auto first = std::ranges::find(run_leads, kind, &Lead::kind);
      if (first == run_leads.end()) continue;
      Series series = lead_series(*leads, first->rule, kind);
      series.name.code(row_name(first->rule, kind)).plain(std::string(", ") + name);
      if (!series.x.empty()) chart.series.push_back(std::move(series));
    }
  }
  if (!chart.empty()) page.plot(line_plot(chart));
  page.table(side_by_side(run_leads, study_leads));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

void add_cost(Page& page, const json& cost) {
  page.says("demo cost",
            {{"difference", fmt::format("{:.1g}", cost.at("difference").get<double>())}});
  Words words;
  for (const char* word : {"heads", "dim", "threads", "rounds"}) words[word] = cost.at(word).dump();
  LineChart chart = chart_named("demo cost", words);
  for (const auto& [name, by_length] : cost.at("seconds").items()) {
    Series series{name, cost.at("lengths"), {}};
    for (const json& seconds : by_length) series.y.push_back(1e3 * median(seconds));
    chart.series.push_back(std::move(series));
  }
  chart.x_ticks = chart.series.at(0).x;
  const Plot plot = line_plot(chart);
  page.plot(plot).table(plot.numbers);
}

}  // namespace

std::string demo_report(const json& result) {
  return read_as("demo", [&] {
    Page page("What Isentrope measures here",
              prose_named("demo", {{"machine", text_of(result, "machine")},
                                   {"date", text_of(result, "date")}}));
    add_heads(page, result.at("heads"));
    add_stretched(page, result.at("stretched"), result.at("heads"));
    add_training(page, result.at("training"), result.at("study"));
    add_cost(page, result.at("cost"));
    return page.html();
  });
}

}  // namespace isentrope::report
