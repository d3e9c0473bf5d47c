// Leads: difference of one row to another, paired by seed, and its significance.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/analysis/rows.h"
#include "tools/analysis/statistics.h"

namespace isentrope::analysis {

// Undecided until its family is judged, and always if paired() gives a reason.
enum class Verdict { helps, hurts, undecided };
[[nodiscard]] std::string_view name_of(Verdict verdict);

struct Lead {
  std::string rule, kind;
  std::vector<RowName> also{};  // rows of the same numbers
  std::string metric;           // "accuracy", in points, or "cross_entropy", in nats
  std::int64_t length = 0;
  Paired seeds{};
  std::optional<TextInterval> text{};  // if the records have blocks
  double adjusted_p = kNotANumber;     // adjusted for its family
  Verdict verdict = Verdict::undecided;
};

// Returns the lead of a row over another, over their common seeds, at index `at` of their lengths.
[[nodiscard]] Lead lead_over(const Row& row, const Row& other, const std::string& metric,
                             std::size_t at);

// Returns the leads of every row over the model trained with the standard scale, in both metrics at
// every length. Empty without that model. Verdicts are undecided.
[[nodiscard]] std::vector<Lead> leads_of(const std::vector<nlohmann::json>& records);

// Sets verdicts: leads whose p, adjusted by `adjust` for the whole family, is below 0.05
// help or hurt. More accuracy helps, and less cross-entropy.
using Adjustment = std::vector<double> (*)(const std::vector<double>&);
void judge(const std::vector<Lead*>& family, Adjustment adjust);

// Judges leads not declared before, by Benjamini and Hochberg: one family for each kind of row, all
// lengths, both metrics. In one of all kinds, large leads of references would help the rest.
void judge_by_kind(const std::vector<Lead*>& leads);

// Returns the judged leads of a run that declared nothing before.
[[nodiscard]] std::vector<Lead> exploratory_leads(const std::vector<nlohmann::json>& records);

// Returns the member "leads" of a result.json (docs/result-schema.md).
[[nodiscard]] nlohmann::json leads_json(const std::vector<Lead>& leads);

}  // namespace isentrope::analysis
