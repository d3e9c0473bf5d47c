// Pages: HTML files of this project's JSON documents, and of rules and their theory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/page.h"
#include "tools/report/result.h"

namespace isentrope::report {

struct Comparison;  // law_charts.h

struct DocumentPage {
  std::string page;                     // HTML
  std::vector<std::string> verdicts{};  // of a study, as sentences
};
// Returns the page of any JSON file that a command wrote. Throws Error naming the file if its text
// is not JSON or not of a known kind.
[[nodiscard]] DocumentPage page_of_file(const std::string& name, std::string_view text);

// Each returns the HTML page of its document, and throws Error for any other.
[[nodiscard]] std::string bench_report(const nlohmann::json& result);  // of make bench
[[nodiscard]] std::string calibration_report(const nlohmann::json& result);
[[nodiscard]] std::string demo_report(const nlohmann::json& result);  // of make demo
[[nodiscard]] std::string evaluation_report(const nlohmann::json& result);
[[nodiscard]] std::string extrapolation_report(const nlohmann::json& result);
[[nodiscard]] std::string inspection_report(const nlohmann::json& result);
[[nodiscard]] std::string monitor_report(const nlohmann::json& document);
[[nodiscard]] std::string study_report(const nlohmann::json& study);  // of scripts/study

// Returns the document of a log, one JSON object a line: {"kind": "monitor", "rows": [...]}. Throws
// Error naming the file and the line that is not JSON.
[[nodiscard]] nlohmann::json monitor_document(const std::string& name, std::string_view lines);

// Returns sentences: progress, verdicts of the declared primary family, exploratory ones by cell.
[[nodiscard]] std::vector<std::string> study_verdicts(const nlohmann::json& study);

// Returns a page that compares rules: their scale, and its effect on rows of normal scores.
[[nodiscard]] std::string scale_page(const Comparison& comparison);
// Returns a page on why the scale should depend on n, from Var(q.k) = d to the gradient.
[[nodiscard]] std::string theory_page(std::int64_t dim);

// Parts of a page that other pages show, too.
void add_findings(Page& page, const Result& result, bool of_a_cell);  // of an extrapolation
void add_losses(Page& page, const nlohmann::json& nll);  // by position, against the first method
// Entropy under several scales, from inspections, and where the first one's weight goes.
void add_scales(Page& page, const nlohmann::json& documents);

}  // namespace isentrope::report
