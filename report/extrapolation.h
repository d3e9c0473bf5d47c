// The report of `isentrope extrapolate`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report/page.h"
#include "report/result.h"

namespace isentrope::report {

// The HTML page for a result.json. What the document leaves out is left out of the page. Throws
// Error naming the key when the document is not what docs/result-schema.md says.
[[nodiscard]] std::string extrapolation_report(const nlohmann::json& result);

// Its tables and charts: accuracy, leads, why, training. Of one cell of several they stand under
// the heading of that cell.
void add_findings(Page& page, const Result& result, bool of_a_cell);

}  // namespace isentrope::report
