#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace isentrope::report {

// Returns the HTML page for a bench.json (docs/bench-tables.md): rates against length and peers,
// and a roofline. Throws Error if the document is invalid.
[[nodiscard]] std::string bench_report(const nlohmann::json& result);

// Returns the results of one system in a row of bench.json. Throws Error if there are none.
[[nodiscard]] const nlohmann::json& system_of(const nlohmann::json& row, std::string_view name);

}  // namespace isentrope::report
