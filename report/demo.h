// The report of make demo.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace isentrope::report {

// The HTML page for the demo.json of scripts/demo: inspections of a model, a calibration, a study
// of one cell beside a larger one, and what calls cost. Throws Error when the document is not one.
[[nodiscard]] std::string demo_report(const nlohmann::json& result);

}  // namespace isentrope::report
