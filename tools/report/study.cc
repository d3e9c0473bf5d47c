#include "tools/report/study.h"

#include <fmt/core.h>

#include "tools/analysis/records.h"
#include "tools/analysis/study.h"
#include "tools/report/assets.h"
#include "tools/report/document.h"
#include "tools/report/extrapolation.h"
#include "tools/report/overview.h"
#include "tools/report/page.h"
#include "tools/report/result.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using analysis::Study;
using nlohmann::json;

Text summary_of(const Study& study) {
  return Text::markup(Text().strong(progress_words(study)).html() + " " +
                      part_of(assets::prose_html, "judged study"));
}

}  // namespace

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
              summary_of(study));
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
