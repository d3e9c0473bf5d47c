// Report of make demo.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace isentrope::report {

// Returns the HTML page for scripts/demo's demo.json: inspections of a model, a calibration, a
// study of one cell beside a larger one, and the cost of calls. Throws Error if it is invalid.
[[nodiscard]] std::string demo_report(const nlohmann::json& result);

}  // namespace isentrope::report
