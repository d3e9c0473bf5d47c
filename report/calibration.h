// The pages of `isentrope calibrate` and `isentrope evaluate`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report/page.h"

namespace isentrope::report {

// `result` is what either command writes. Throws Error, which names what is missing, for anything
// else.
[[nodiscard]] std::string calibration_report(const nlohmann::json& result);
[[nodiscard]] std::string evaluation_report(const nlohmann::json& result);

// The member "nll" of either, not empty: each method's difference to the first by position, with
// its errors, as a chart and as a table.
void add_losses(Page& page, const nlohmann::json& nll);

}  // namespace isentrope::report
