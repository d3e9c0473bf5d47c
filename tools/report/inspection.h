#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/report/page.h"

namespace isentrope::report {

// Returns the HTML page for an inspection (kind "inspection", version 1). Throws Error naming the
// key if the document violates docs/inspect.md.
[[nodiscard]] std::string inspection_report(const nlohmann::json& result);

// Adds inspections of one model under several scales: entropy of a row against the number of its
// keys, and the slope of each head. Throws Error as above, and if there are none.
void add_scales(Page& page, const nlohmann::json& inspections);

}  // namespace isentrope::report
