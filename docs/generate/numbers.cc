// Prints as JSON what the documentation's pages show of the library and of the studies whose files
// are given: rules, numbers of theory, studies with their verdicts, and charts without their style.

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "isentrope/statistics.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"
#include "isentrope/theory/sampled_gradient.h"
#include "tools/analysis/records.h"
#include "tools/analysis/study.h"
#include "tools/report/extrapolation_charts.h"
#include "tools/report/law_charts.h"
#include "tools/report/study.h"
#include "tools/report/verdict_words.h"

namespace isentrope {

namespace report {
NLOHMANN_JSON_SERIALIZE_ENUM(Axis, {{Axis::linear, "linear"},
                                    {Axis::log2, "log2"},
                                    {Axis::log10, "log10"}})
}  // namespace report

namespace docs {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json catalogue() {
  json rules = json::array();
  for (const RuleInfo& rule : rule_catalogue()) {
    rules.push_back({{"name", rule.name},
                     {"signature", signature(rule)},
                     {"formula", rule.formula},
                     {"source", rule.source},
                     {"use", rule.use},
                     {"at_one", rule.at_one},
                     {"counts", rule.counts}});
  }
  return rules;
}

// Returns the factor of every rule over the standard scale, by length.
ordered_json factors() {
  constexpr std::int64_t kDim = 128;
  ordered_json rules;
  for (const ScaleRule& rule : ScaleRule::all())
    for (const std::int64_t n : {1, 16, 64, 512, 4096, 16384, 131072, 1048576})
      rules[rule.text()][std::to_string(n)] = rule.lambda({n, n - 1, n}, kDim) * std::sqrt(kDim);
  return rules;
}

ordered_json laplace() {
  ordered_json coefficients;
  for (const double lambda : {0.01, 0.125, 0.5, 0.88, 1.0, 1.3, 2.0, 4.0})
    coefficients[fmt::format("{}", lambda)] = theory::laplace_coefficient(lambda);
  return coefficients;
}

// Returns, by rule and length, the share of rows without gradient and the mean gradient mass.
ordered_json starved() {
  constexpr int kRows = 2000;
  ordered_json rules;
  for (const ScaleRule& rule :
       {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::scaled({2.5}),
        ScaleRule::grad_max_normal(), ScaleRule::ssmax(), ScaleRule::log_length()}) {
    for (const std::int64_t n : {20, 64, 512, 4096, 65536, 1048576}) {
      const double alpha = rule.lambda({n, n - 1, n}, 64) * 8;
      rules[rule.text()][std::to_string(n)] = {
          theory::sampled_gradient(static_cast<double>(n), std::vector{alpha}, kRows)
              .front()
              .starved,
          theory::rule_gradient_mass(rule, n, 64)};
    }
  }
  return rules;
}

// A chart in the form of tools/report/charts.json, with its series.
json json_of(const report::LineChart& chart) {
  json series = json::array();
  for (const report::Series& line : chart.series) {
    series.push_back({{"name", line.name.html()},
                      {"x", line.x},
                      {"y", line.y},
                      {"spread", line.spread},
                      {"reference", line.reference}});
    if (line.colour) series.back()["colour"] = *line.colour;
  }
  return {{"title", chart.title.html()},    {"x", chart.x_label},     {"y", chart.y_label},
          {"x_axis", chart.x_axis},         {"y_axis", chart.y_axis}, {"ticks", chart.x_ticks},
          {"from_zero", chart.y_from_zero}, {"series", series}};
}

// Returns charts of laws by the names of their files.
json charts() {
  const report::Comparison rules{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::grad_max_normal(),
       ScaleRule::scaled({2.5}), ScaleRule::log_length()},
      {16, 64, 256, 1024, 4096, 16384, 65536, 262144}};
  const report::Comparison bases{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(512), ScaleRule::entropy_invariant(64),
       ScaleRule::entropy_invariant(8), ScaleRule::entropy_invariant(4.5)},
      {64, 256, 1024, 4096, 16384}};
  return {{"normal-optimum", json_of(report::normal_optimum_chart())},
          {"cosine-optimum", json_of(report::cosine_optimum_chart(128))},
          {"entropy-law", json_of(report::entropy_law_chart(512, 64))},
          {"entropy", json_of(report::entropy_chart(rules))},
          {"entropy-held", json_of(report::entropy_chart(bases))},
          {"starved", json_of(report::starved_chart(rules))}};
}

json differentiable_statistics() {
  json names = json::array();
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.differentiable()) names.push_back(statistic.name);
  });
  return names;
}

json json_of(const analysis::Lead& lead) {
  json of = analysis::leads_json({lead}).front();
  of["words"] = report::lead_words(lead);
  of["name"] = report::row_name(lead);
  return of;
}

json json_of(const std::vector<analysis::Lead>& leads) {
  json all = json::array();
  for (const analysis::Lead& lead : leads) all.push_back(json_of(lead));
  return all;
}

json json_of(const std::vector<analysis::Contrast>& family) {
  const auto side = [](const analysis::Side& of) {
    return fmt::format("{}: `{}`", of.cell, report::row_name(of.row.rule, of.row.kind));
  };
  json all = json::array();
  for (const auto& [hypothesis, of, against, lead] : family)
    all.push_back({{"hypothesis", hypothesis},
                   {"of", side(of)},
                   {"over", side(against)},
                   {"lead", json_of(lead)}});
  return all;
}

// Returns what is known of the rows of a cell with at least one training.
json measured(const analysis::Cell& cell) {
  const report::Result result = report::cell_result(cell.records);
  json rows = analysis::rules_json(cell.records), of_seeds = json::array();
  for (json& row : rows) row["title"] = report::row_name(row.at("rule"), row.at("kind"));
  for (const json& record : cell.records)
    if (record.contains("gains")) of_seeds.push_back(analysis::gains_json({record}));
  json uniform = json::array();
  for (const auto& [length, entropy] : result.uniform_entropy()) uniform.push_back(entropy);
  return {{"lengths", result.lengths},  {"rows", rows},
          {"uniform", uniform},         {"gains", analysis::gains_json(cell.records)},
          {"gains_of_seeds", of_seeds}, {"chart", json_of(report::gain_chart(result))}};
}

json json_of(const analysis::Study& study) {
  json cells = json::array(), pooled = json::array();
  for (std::size_t i = 0; i < study.cells.size(); ++i) {
    const analysis::Cell& cell = study.cells[i];
    cells.push_back({{"name", cell.name},
                     {"options", cell.options},
                     {"planned", cell.planned},
                     {"done", cell.records.size()},
                     {"leads", json_of(study.leads[i])}});
    if (!cell.records.empty()) cells.back().update(measured(cell));
  }
  for (const analysis::PooledLead& lead : study.pooled)
    pooled.push_back({{"cells", lead.cells}, {"lead", json_of(lead.lead)}});
  return {{"question", study.question},
          {"progress", report::progress_words(study)},
          {"complete", study.complete()},
          {"cells", cells},
          {"pooled", pooled},
          {"primary", json_of(study.primary)},
          {"secondary", json_of(study.secondary)}};
}

// Returns the lines' styles: colours and dashes by place, and the dashes of references.
json styles() {
  json lines = json::array();
  for (int place = 0; place < 40; ++place)
    lines.push_back({report::colour(place), report::dashes(place, /*reference=*/false)});
  return {{"lines", lines},
          {"neutral", report::colour(report::kNeutral)},
          {"reference", report::dashes(0, /*reference=*/true)}};
}

ordered_json numbers(std::span<char*> files) {
  ordered_json studies;
  for (const char* file : files) {
    // Ordered JSON keeps the cells in the order of the plan.
    const auto study = analysis::read_study(ordered_json::parse(std::ifstream(file)));
    studies[std::filesystem::path(file).stem().string()] = json_of(study);
  }
  return {{"rules", catalogue()}, {"factors", factors()},
          {"laplace", laplace()}, {"starved", starved()},
          {"charts", charts()},   {"styles", styles()},
          {"studies", studies},   {"differentiable", differentiable_statistics()}};
}

}  // namespace
}  // namespace docs
}  // namespace isentrope

int main(int argc, char** argv) {
  fmt::print("{}\n",
             isentrope::docs::numbers({argv + 1, static_cast<std::size_t>(argc - 1)}).dump());
}
