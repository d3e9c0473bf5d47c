// The report of `isentrope inspect`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report/page.h"

namespace isentrope::report {

// The HTML page for the JSON of an inspection (kind "inspection", version 1). Throws Error naming
// the key when the document is not what docs/inspect.md says.
[[nodiscard]] std::string inspection_report(const nlohmann::json& result);

// Inspections of one model under several scales, side by side: the entropy of a row against the
// keys it sees, and how that of each head grows. Throws Error as above, and when there is none.
void add_scales(Page& page, const nlohmann::json& inspections);

}  // namespace isentrope::report
