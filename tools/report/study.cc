#include "tools/report/study.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tools/analysis/records.h"
#include "tools/report/assets.h"
#include "tools/report/document.h"
#include "tools/report/pages.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using analysis::Lead;
using analysis::Study;
using analysis::Verdict;
using nlohmann::json;

struct Kind {
  std::string_view name, text;
  Marker marker;
};

// Kinds in the overview; probes would crowd it.
constexpr Kind kDrawn[] = {{"trained", "trained with a rule", kMarkers[0]},
                           {"rescaled", "the model of standard, rescaled by a rule", kMarkers[2]},
                           {"near", "near keys only", kMarkers[1]}};

// Sort key, smallest first: the verdict, then the size of the lead.
using Says = std::pair<int, double>;

Says says(const std::vector<Lead>& leads) {
  Says most{2, 0};
  for (const Lead& lead : leads) {
    if (lead.metric != "accuracy" || hides_far_keys(lead.kind)) continue;
    const int group = lead.verdict == Verdict::helps ? 0 : lead.verdict == Verdict::hurts ? 1 : 2;
    most = std::min(most, {group, -std::abs(lead.seeds.mean)});
  }
  return most;
}

std::vector<const Lead*> leads_at(const std::vector<Lead>& leads, std::int64_t length) {
  std::vector<const Lead*> found;
  for (const Lead& lead : leads) {
    if (lead.metric != "accuracy" || lead.length != length || !std::isfinite(lead.seeds.mean))
      continue;
    if (std::ranges::find(kDrawn, lead.kind, &Kind::name) != std::end(kDrawn))
      found.push_back(&lead);
  }
  return found;
}

json point_of(const Lead& lead, const std::string& cell, double place) {
  const auto kind = std::ranges::find(kDrawn, lead.kind, &Kind::name) - std::begin(kDrawn);
  const bool bar = std::isfinite(lead.seeds.low);
  return {{"series", kind},
          {"cell", cell},
          {"place", place},
          {"mean", lead.seeds.mean},
          {"low", bar ? lead.seeds.low : lead.seeds.mean},
          {"high", bar ? lead.seeds.high : lead.seeds.mean},
          {"called", lead.verdict != Verdict::undecided},
          {"label", cell + ", " + row_name(lead) + ": " + lead_words(lead)}};
}

std::int64_t longest_of(const analysis::Study& study) {
  std::int64_t longest = 0;
  for (const std::vector<Lead>& leads : study.leads) {
    for (const Lead& lead : leads) longest = std::max(longest, lead.length);
  }
  return longest;
}

}  // namespace

std::vector<std::size_t> cells_by_result(const analysis::Study& study) {
  std::vector<std::size_t> cells;
  for (std::size_t i = 0; i < study.cells.size(); ++i) {
    if (!study.cells[i].records.empty()) cells.push_back(i);
  }
  std::ranges::stable_sort(cells, {}, [&](std::size_t cell) { return says(study.leads[cell]); });
  return cells;
}

Plot overview_plot(const analysis::Study& study, const std::vector<std::size_t>& cells) {
  const std::int64_t length = longest_of(study);
  const json words = chart_words("overview", {{"length", compact(static_cast<double>(length))}});
  Plot plot{.title = words.at("title").get<std::string>(),
            .caption = Text::markup(words.at("caption").get<std::string>()),
            .spec = json::parse(assets::overview_json),
            .legend = {},
            .numbers = {{}, {"row", "lead in points"}, {}}};
  json &points = plot.spec["data"][0]["values"], &scales = plot.spec["scales"];
  for (const std::size_t cell : cells) {
    const std::vector<const Lead*> leads = leads_at(study.leads[cell], length);
    if (leads.empty()) continue;
    const std::string& name = study.cells[cell].name;
    scales[1]["domain"].push_back(name);
    plot.numbers.groups.push_back({name, {}});
    for (std::size_t i = 0; i < leads.size(); ++i) {
      const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(leads.size());
      points.push_back(point_of(*leads[i], name, place));
      plot.numbers.add(Text().code(row_name(*leads[i])), {lead_words(*leads[i])});
    }
  }
  plot.spec["height"] = 20 + 34 * scales[1]["domain"].size();
  for (int i = 0; i < static_cast<int>(std::size(kDrawn)); ++i) {
    plot.legend.push_back({kDrawn[i].text, colour(i), dashes(0, false), kDrawn[i].marker});
    for (const int scale : {2, 3}) scales[scale]["domain"].push_back(i);
    scales[2]["range"].push_back(colour(i));
    scales[3]["range"].push_back(kDrawn[i].marker.shape);
  }
  return plot;
}

Result cell_result(const std::vector<json>& records, const std::vector<analysis::Lead>& leads) {
  const json& first = records.front();
  const json& model = first.at("configuration");
  json document = {{"lengths", first.at("evaluation").at("lengths")},
                   {"train_length", model.at("train_length")},
                   {"config", {{"objective", model.at("objective")}}},
                   {"rules", analysis::rules_json(records)},
                   {"leads", analysis::leads_json(leads)}};
  if (const json gains = analysis::gains_json(records); !gains.is_null()) document["gains"] = gains;
  // Round-trips through text, because files hold null for non-finite numbers.
  return parse_result(json::parse(document.dump()));
}

std::string study_report(const json& document) {
  return read_as("study", [&] {
    const Study study = analysis::read_study(document);
    Page page(study.question.empty() ? "When does a length rule help" : study.question,
              Text::markup(Text().strong(progress_words(study)).html() + " " +
                           prose_named("judged study").html()));
    for (const std::string& sentence : declared_sentences(study)) page.prose(sentence);
    const std::vector<std::size_t> cells = cells_by_result(study);
    if (const Plot overview = overview_plot(study, cells); !overview.numbers.groups.empty())
      page.plot(overview);
    for (const std::size_t i : cells) {
      const analysis::Cell& cell = study.cells[i];
      const Result result = cell_result(cell.records, study.leads[i]);
      page.heading(cell.name);
      page.code("isentrope extrapolate " + cell.options + " " + document.value("common", ""));
      for (const std::string& sentence : verdict_sentences(result.leads)) page.prose(sentence);
      add_findings(page, result, /*of_a_cell=*/true);
    }
    return page.html();
  });
}

std::vector<std::string> study_verdicts(const json& document) {
  return read_as("study", [&] {
    const Study study = analysis::read_study(document);
    std::vector<std::string> verdicts = {progress_words(study)};
    for (const std::string& sentence : declared_sentences(study)) verdicts.push_back(sentence);
    if (!study.question.empty() && !study.complete()) return verdicts;
    for (std::size_t i = 0; i < study.cells.size(); ++i) {
      for (const std::string& sentence : verdict_sentences(study.leads[i]))
        verdicts.push_back(study.cells[i].name + ": " + sentence);
    }
    return verdicts;
  });
}

}  // namespace isentrope::report
