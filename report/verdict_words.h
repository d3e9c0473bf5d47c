// Verdicts in words, as every page and table has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/analysis/study.h"

namespace isentrope::report {

// Whether a row of that kind is a reference whose far keys are hidden.
[[nodiscard]] bool hides_far_keys(std::string_view kind);

// "RULE", "RULE on the model of standard", "RULE, near keys only", "RULE, frozen", ...
[[nodiscard]] std::string row_name(const std::string& rule, const std::string& kind);

// The same of a row whose numbers others share: "RULE (and OTHER RULE)".
[[nodiscard]] std::string row_name(const analysis::Lead& lead);

// "+1.2 [0.3, 2.1]": mean and 95 % interval, in points with one digit or in nats with three; the
// mean alone where there is no interval.
[[nodiscard]] std::string lead_numbers(const analysis::Lead& lead);

// The same with the verdict, or what keeps it undecided: "+1.2 [0.3, 2.1] helps", "+1.2 undecided
// (fewer than 3 seeds)".
[[nodiscard]] std::string lead_words(const analysis::Lead& lead);

// One sentence for every row but the references: where it helps, where it hurts and where that is
// undecided, by accuracy.
[[nodiscard]] std::vector<std::string> verdict_sentences(const std::vector<analysis::Lead>& leads);

// "12 of 40 trainings are done.", and of an experiment that declared its verdicts whether they are
// in it.
[[nodiscard]] std::string progress_words(const analysis::Study& study);

// One sentence for each test of a complete study's declared families, the primary one first; empty
// otherwise.
[[nodiscard]] std::vector<std::string> declared_sentences(const analysis::Study& study);

}  // namespace isentrope::report
