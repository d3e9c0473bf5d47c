#include "report/study.h"

#include <fmt/core.h>

#include "isentrope/error.h"
#include "report/extrapolation.h"
#include "report/leads.h"
#include "report/page.h"
#include "report/records.h"
#include "report/result.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

struct Cell {
  std::string name, options;
  std::int64_t planned = 0;
  std::vector<json> records;
};

// Names the document as a whole: it is written by a program, and read back by this one.
template <typename Use>
auto reading(const Use& use) {
  try {
    return use();
  } catch (const json::exception&) {
    throw Error("[study_report] the document must be what scripts/study writes; it is damaged");
  }
}

std::vector<Cell> cells_of(const json& study) {
  std::vector<Cell> cells;
  for (const auto& [name, cell] : study.at("cells").items()) {
    cells.push_back({name, cell.at("options"), cell.at("planned"), {}});
    for (const json& record : cell.at("records")) cells.back().records.push_back(record);
  }
  return cells;
}

Text summary_of(const std::vector<Cell>& cells) {
  std::size_t done = 0;
  std::int64_t planned = 0;
  for (const Cell& cell : cells) {
    done += cell.records.size();
    planned += cell.planned;
  }
  Text text;
  text.strong(fmt::format("{} of {} trainings are done.", done, planned));
  return text.plain(
      " Leads in points of accuracy over the model trained with the standard scale, paired by "
      "seed; "
      "what is beyond two standard errors is called, the rest is undecided.");
}

}  // namespace

Result cell_result(const std::vector<json>& records) {
  const json& first = records.front();
  const json& model = first.at("configuration");
  const json rules = rules_json(records);
  json document = {{"lengths", first.at("evaluation").at("lengths")},
                   {"train_length", model.at("train_length")},
                   {"config", {{"objective", model.at("objective")}}},
                   {"rules", rules},
                   {"leads", leads_json(leads_of(rules))}};
  if (const json gains = gains_json(records); !gains.is_null()) document["gains"] = gains;
  // As it would be read from a file, where numbers that are not finite are null.
  return parse_result(json::parse(document.dump()));
}

std::string study_report(const json& study) {
  return reading([&] {
    const std::vector<Cell> cells = cells_of(study);
    Page page("When does a length rule help", summary_of(cells));
    for (const Cell& cell : cells) {
      if (cell.records.empty()) continue;
      const Result result = cell_result(cell.records);
      page.heading(cell.name);
      page.code("isentrope extrapolate " + cell.options + " " + study.value("common", ""));
      for (const std::string& sentence : verdict_sentences(result.leads)) page.prose(sentence);
      add_findings(page, result);
    }
    return page.html();
  });
}

std::vector<std::string> study_verdicts(const json& study) {
  return reading([&] {
    std::vector<std::string> verdicts;
    for (const Cell& cell : cells_of(study)) {
      if (cell.records.empty()) continue;
      for (const std::string& sentence : verdict_sentences(cell_result(cell.records).leads))
        verdicts.push_back(cell.name + ": " + sentence);
    }
    return verdicts;
  });
}

}  // namespace isentrope::report
