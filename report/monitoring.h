// The report of a training's attention log.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace isentrope::report {

// The JSON lines that isentrope.models.monitor_logs.JsonLines writes, as a document of kind
// "monitor". Throws Error naming the line that is not JSON.
[[nodiscard]] nlohmann::json monitor_document(const std::string& name, std::string_view lines);

// The HTML page of that document: heads by steps, and each layer's numbers against the step. Throws
// Error when the document has no rows, or a row lacks a member.
[[nodiscard]] std::string monitor_report(const nlohmann::json& document);

}  // namespace isentrope::report
