#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/report/page.h"
#include "tools/report/result.h"

namespace isentrope::report {

// Returns the HTML page for a result.json. Parts without data are omitted. Throws Error naming the
// key if the document violates docs/result-schema.md.
[[nodiscard]] std::string extrapolation_report(const nlohmann::json& result);

// Adds accuracy, leads, why, training. of_a_cell: subheadings, under the heading of one of several.
void add_findings(Page& page, const Result& result, bool of_a_cell);

}  // namespace isentrope::report
