// The report of make bench.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace isentrope::report {

// The HTML page for a bench.json (docs/bench.md): rates against length and peers, and a roofline.
// Throws Error when the document is not one.
[[nodiscard]] std::string bench_report(const nlohmann::json& result);

// What a row of bench.json says of one system. Throws Error when it says nothing.
[[nodiscard]] const nlohmann::json& system_of(const nlohmann::json& row, std::string_view name);

}  // namespace isentrope::report
