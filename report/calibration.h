// The pages of `isentrope calibrate` and `isentrope evaluate`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace isentrope::report {

// `result` is what either command writes. Throws Error, which names what is missing, for anything
// else.
[[nodiscard]] std::string calibration_report(const nlohmann::json& result);
[[nodiscard]] std::string evaluation_report(const nlohmann::json& result);

}  // namespace isentrope::report
