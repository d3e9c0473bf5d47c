// Verdicts as text for pages and tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/analysis/study.h"

namespace isentrope::report {

// Returns whether a row of that kind is a reference whose far keys are hidden.
[[nodiscard]] bool hides_far_keys(std::string_view kind);

// Returns "RULE", "RULE on the model of standard", "RULE, near keys only", "RULE, frozen", ...
[[nodiscard]] std::string row_name(const std::string& rule, const std::string& kind);

// Same for a row whose numbers other rows share: "RULE (and OTHER RULE)".
[[nodiscard]] std::string row_name(const analysis::Lead& lead);

// Returns "+1.2 [0.3, 2.1]": mean and 95 % interval, in points with one digit or in nats with
// three; only the mean without an interval.
[[nodiscard]] std::string lead_numbers(const analysis::Lead& lead);

// Same with verdict or reason: "+1.2 [0.3, 2.1] helps", "+1.2 undecided (fewer than 3 seeds)".
[[nodiscard]] std::string lead_words(const analysis::Lead& lead);

// Returns a sentence for each row but references: where it helps or hurts by accuracy, or neither.
[[nodiscard]] std::vector<std::string> verdict_sentences(const std::vector<analysis::Lead>& leads);

// Returns "12 of 40 trainings are done.", and whether declared verdicts are included.
[[nodiscard]] std::string progress_words(const analysis::Study& study);

// Returns a sentence for each declared test of a complete study, primary ones first, or none.
[[nodiscard]] std::vector<std::string> declared_sentences(const analysis::Study& study);

}  // namespace isentrope::report
