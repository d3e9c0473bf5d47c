#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace isentrope::report {

// Parses the JSON lines of isentrope.models.monitor_logs.JsonLines, or of the backend of ggml, into
// a document of kind "monitor". Throws Error naming the line that is not JSON.
[[nodiscard]] nlohmann::json monitor_document(const std::string& name, std::string_view lines);

// Returns the HTML page of that document: heads by steps, and each layer's numbers against the
// step. Throws Error if the document has no rows or a row lacks a member.
[[nodiscard]] std::string monitor_report(const nlohmann::json& document);

}  // namespace isentrope::report
