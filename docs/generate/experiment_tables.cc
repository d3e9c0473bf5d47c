// Questions, progress and, if complete, declared tests of the experiments of tools/lab/experiments.

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "tools/analysis/study.h"
#include "tools/report/numbers.h"
#include "tools/report/verdict_words.h"

namespace isentrope::docs {
namespace {

using analysis::Contrast;
using analysis::Study;
using nlohmann::ordered_json;

std::vector<std::pair<std::string, Study>> experiments_of(const std::filesystem::path& docs) {
  std::vector<std::pair<std::string, Study>> studies;
  for (const char* name : {"notes-size", "length-or-sharpness", "bias-learning-rate",
                           "scales-for-the-gradient", "line-to-the-note"}) {
    std::ifstream file(docs / "results" / (std::string(name) + ".json"));
    studies.emplace_back(name, analysis::read_study(ordered_json::parse(file)));
  }
  return studies;
}

std::string side(const analysis::Side& of) {
  return fmt::format("{}: `{}`", of.cell, report::row_name(of.row.rule, of.row.kind));
}

std::string family_table(const std::vector<Contrast>& family) {
  Rows rows = {
      {"hypothesis", "of", "over", "n", "lead", "df", "p", "adjusted", "by the text alone"}};
  for (const Contrast& test : family) {
    const analysis::Lead& lead = test.lead;
    const int digits = lead.metric == "accuracy" ? 1 : 3;
    rows.push_back({test.hypothesis, side(test.of), side(test.against), std::to_string(lead.length),
                    report::lead_words(lead), std::to_string(lead.seeds.df()),
                    report::decimal(lead.seeds.p, 4), report::decimal(lead.adjusted_p, 4),
                    lead.text ? report::interval(lead.text->low, lead.text->high, digits) : "–"});
  }
  return markdown_table(rows);
}

}  // namespace

ExperimentTables experiment_tables(const std::filesystem::path& docs) {
  Rows rows = {{"experiment", "question", "trainings"}};
  std::string declared;
  for (const auto& [name, study] : experiments_of(docs)) {
    rows.push_back({fmt::format("[{0}](../tools/lab/experiments/{0}.json)", name), study.question,
                    report::progress_words(study)});
    if (!study.complete()) continue;
    declared += fmt::format("\n### {}\n\n{}", name, family_table(study.primary));
    if (!study.secondary.empty())
      declared += "\nThe secondary family:\n\n" + family_table(study.secondary);
  }
  return {.progress = markdown_table(rows), .declared = declared};
}

}  // namespace isentrope::docs
