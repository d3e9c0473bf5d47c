// The report of `isentrope inspect`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace isentrope::report {

// The HTML page for the JSON of an inspection (kind "inspection", version 1). Throws Error naming
// the key when the document is not what docs/inspect.md says.
[[nodiscard]] std::string inspection_report(const nlohmann::json& result);

}  // namespace isentrope::report
