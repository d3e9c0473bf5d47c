// Pages of `isentrope calibrate` and `isentrope evaluate`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/report/page.h"

namespace isentrope::report {

// Returns the page for the JSON of either command. Throws Error naming what is missing otherwise.
[[nodiscard]] std::string calibration_report(const nlohmann::json& result);
[[nodiscard]] std::string evaluation_report(const nlohmann::json& result);

// Adds a nonempty "nll": chart and table of the methods' differences to the first by position.
void add_losses(Page& page, const nlohmann::json& nll);

}  // namespace isentrope::report
