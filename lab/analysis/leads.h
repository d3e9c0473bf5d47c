// Leads: what one row gives over another, paired by seed, and whether that is beyond chance.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/analysis/paired.h"
#include "lab/analysis/rows.h"
#include "lab/analysis/text_interval.h"

namespace isentrope::analysis {

// Undecided until its family is judged, and for good where the pairs say why (paired.h).
enum class Verdict { helps, hurts, undecided };
[[nodiscard]] std::string_view name_of(Verdict verdict);

struct Lead {
  std::string rule, kind;       // of the row
  std::vector<RowName> also{};  // rows of the same numbers
  std::string metric;           // "accuracy", in points, or "cross_entropy", in nats
  std::int64_t length = 0;
  Paired seeds{};
  std::optional<TextInterval> text{};  // where the records have blocks
  double adjusted_p = kNotANumber;     // in its family
  Verdict verdict = Verdict::undecided;
};

// Of a row over another, over the seeds that both have, at the place `at` of their lengths.
[[nodiscard]] Lead lead_over(const Row& row, const Row& other, const std::string& metric,
                             std::size_t at);

// Of every row over the model trained with the standard scale, in both metrics at every length.
// Empty without that model. Not judged.
[[nodiscard]] std::vector<Lead> leads_of(const std::vector<nlohmann::json>& records);

// What is below 0.05, adjusted by `adjust` (family.h) for all of the family, helps or hurts. More
// accuracy helps, and less cross-entropy.
using Adjustment = std::vector<double> (*)(const std::vector<double>&);
void judge(const std::vector<Lead*>& family, Adjustment adjust);

// What was not declared before: by Benjamini and Hochberg, what is of one kind in one family, at
// all lengths and in both metrics. The references' large leads would make it easy for the rest.
void judge_by_kind(const std::vector<Lead*>& leads);

// The leads of a run that declared nothing before.
[[nodiscard]] std::vector<Lead> exploratory_leads(const std::vector<nlohmann::json>& records);

// The member "leads" of a result.json (docs/result-schema.md).
[[nodiscard]] nlohmann::json leads_json(const std::vector<Lead>& leads);

}  // namespace isentrope::analysis
