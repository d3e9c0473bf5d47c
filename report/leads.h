// Leads: what a rule gives over the standard scale, paired by seed, and whether that is beyond
// chance.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope::report {

// Beyond two standard errors or not; from one pair alone always undecided.
enum class Verdict { helps, hurts, undecided };
[[nodiscard]] std::string_view name_of(Verdict verdict);

struct PairedLead {
  double mean = 0;
  double sd = 0, se = 0;  // of the differences; NaN for one pair
  Verdict verdict = Verdict::undecided;
};

// Of at least one difference. More of the metric is good (accuracy), or bad (cross-entropy).
[[nodiscard]] PairedLead paired_lead(const std::vector<double>& differences, bool more_is_better);

// A row's lead at one length in one metric, over the model trained with the standard scale.
struct Lead {
  std::string rule, kind;  // of the row
  std::string metric;      // "accuracy" or "cross_entropy"
  std::int64_t length = 0;
  std::int64_t seeds = 0;
  PairedLead lead{};
};

// Of every row of "rules", at every length, over the seeds that both have. Empty without a model
// trained with the standard scale. `rules` is a result's own (records.h).
[[nodiscard]] std::vector<Lead> leads_of(const nlohmann::json& rules);

// The member "leads" of a result.json.
[[nodiscard]] nlohmann::json leads_json(const std::vector<Lead>& leads);

// "RULE", "RULE on the model of standard", "RULE, near keys only".
[[nodiscard]] std::string row_name(const std::string& rule, const std::string& kind);

// One sentence for every row but the references: where it helps, where it hurts and where that is
// undecided, by accuracy.
[[nodiscard]] std::vector<std::string> verdict_sentences(const std::vector<Lead>& leads);

}  // namespace isentrope::report
