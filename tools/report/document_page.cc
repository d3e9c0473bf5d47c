// Page of any document, by its kind.

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "isentrope/error.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, std::string (*)(const json&)> kPages[] = {
    {"inspection", inspection_report}, {"calibration", calibration_report},
    {"evaluation", evaluation_report}, {"study", study_report},
    {"bench", bench_report},           {"demo", demo_report},
    {"monitor", monitor_report}};

// The oldest documents, result.json, have no kind.
std::string page_of_document(const json& document) {
  if (!document.is_object() || !document.contains("kind")) return extrapolation_report(document);
  const json& kind = document["kind"];
  std::string known;
  for (const auto& [name, page] : kPages) {
    if (kind == name) return page(document);
    known += fmt::format("\"{}\", ", name);
  }
  throw Error(fmt::format("[report] kind must be {}or absent; got {:.60}", known,
                          kind.dump(-1, ' ', true, json::error_handler_t::replace)));
}

json parsed(const std::string& name, std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    throw Error(fmt::format("{} is not JSON (byte {})", name, error.byte));
  }
}

}  // namespace

DocumentPage page_of_file(const std::string& name, std::string_view text) {
  const json document =
      name.ends_with(".jsonl") ? monitor_document(name, text) : parsed(name, text);
  DocumentPage result{.page = page_of_document(document)};
  if (document.is_object() && document.value("kind", json()) == "study")
    result.verdicts = study_verdicts(document);
  return result;
}

}  // namespace isentrope::report
