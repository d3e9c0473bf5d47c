// Charts of the extrapolation report. A rule has one colour in all charts.
#pragma once

#include <string_view>
#include <vector>

#include "tools/report/line_chart.h"
#include "tools/report/result.h"

namespace isentrope::report {

// Results of the experiment that this one repeats at a smaller size: masked language models trained
// at 64 tokens.
namespace su2021 {
inline constexpr const char* kUrl = "https://kexue.fm/archives/8823";
inline const ByLength kStandard = {
    {64, 43.27}, {128, 36.53}, {256, 23.02}, {512, 15.12}, {1024, 11.54}};
inline const ByLength kEntropyInvariant = {
    {64, 43.11}, {128, 41.17}, {256, 34.04}, {512, 20.15}, {1024, 13.58}};
}  // namespace su2021

// Accuracy charts in reading order. Charts without numbers are omitted.
[[nodiscard]] std::vector<LineChart> accuracy_charts(const Result& result);
[[nodiscard]] std::vector<LineChart> why_charts(const Result& result);
[[nodiscard]] std::vector<LineChart> training_charts(const Result& result);

// Returns leads in points of accuracy, with half-lengths of intervals and an empty name.
[[nodiscard]] Series lead_series(const std::vector<analysis::Lead>& leads, std::string_view rule,
                                 std::string_view kind);

// Returns the first of why_charts: accuracy against a constant gain at each length, with the gains
// of the rules marked. Empty without curves.
[[nodiscard]] LineChart gain_chart(const Result& result);

}  // namespace isentrope::report
