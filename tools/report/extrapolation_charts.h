// Charts of the extrapolation report. A rule has one colour in all charts.
#pragma once

#include <string_view>
#include <vector>

#include "tools/report/line_chart.h"
#include "tools/report/result.h"

namespace isentrope::report {

// Charts in reading order. Charts without numbers are omitted.
struct Charts {
  std::vector<LineChart> accuracy, why, training;
};
[[nodiscard]] Charts charts_of(const Result& result);

// Returns leads in points of accuracy, with half-lengths of intervals and an empty name.
[[nodiscard]] Series lead_series(const std::vector<analysis::Lead>& leads, std::string_view rule,
                                 std::string_view kind);

// Returns the first chart of why: accuracy against a constant gain at each length, with the gains
// of the rules marked. Empty without curves.
[[nodiscard]] LineChart gain_chart(const Result& result);

}  // namespace isentrope::report
