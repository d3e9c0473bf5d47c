// The computed parts of the documentation: Markdown tables by the name of their place, and figures.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "report/line_chart.h"

namespace isentrope::docs {

using Rows = std::vector<std::vector<std::string>>;

// | a | b |, the first row being the head.
[[nodiscard]] std::string markdown_table(const Rows& rows);

// Tables of scale-rules.md and of theory.md.
[[nodiscard]] std::map<std::string, std::string> rule_tables();
[[nodiscard]] std::map<std::string, std::string> theory_tables();

// Tables of README.md; `docs` holds results/demo.json, the result.json of a run of the demo, and
// results/bench.json, which make bench wrote.
[[nodiscard]] std::map<std::string, std::string> readme_tables(const std::filesystem::path& docs);

// Of numerics.md, from what `make numerics` measured: docs/results/numerics.json.
[[nodiscard]] std::map<std::string, std::string> numerics_tables(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart error_over_budget_chart(const std::filesystem::path& docs);

// The table of speed out of a bench.json.
[[nodiscard]] std::string bench_table(const std::filesystem::path& bench_file);

// A chart as a small SVG file: lines, axes and names.
[[nodiscard]] std::string figure(const report::LineChart& chart);

}  // namespace isentrope::docs
