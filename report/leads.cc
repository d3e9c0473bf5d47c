#include "report/leads.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include "report/numbers.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

constexpr double kStandardErrors = 2;

struct Metric {
  const char* name;
  bool more_is_better;
};
constexpr Metric kMetrics[] = {{"accuracy", true}, {"cross_entropy", false}};

// By length, the differences of the seeds that both rows have.
std::map<std::int64_t, std::vector<double>> differences(const json& row, const json& baseline,
                                                        const char* metric) {
  std::map<std::int64_t, json> theirs;
  for (const json& seed : baseline.at("seeds")) theirs[seed.at("seed")] = seed.at(metric);
  std::map<std::int64_t, std::vector<double>> result;
  for (const json& seed : row.at("seeds")) {
    const auto other = theirs.find(seed.at("seed"));
    if (other == theirs.end()) continue;
    for (const auto& [length, value] : seed.at(metric).items()) {
      result[std::stoll(length)].push_back(number_of(value) - number_of(other->second.at(length)));
    }
  }
  return result;
}

// "at 128 (+1.0 ± 0.2) and 256 (+2.0 ± 0.3)"; "nowhere" for none.
std::string places(const std::vector<const Lead*>& leads) {
  if (leads.empty()) return "nowhere";
  std::string text = "at ";
  for (std::size_t i = 0; i < leads.size(); ++i) {
    const auto& [mean, sd, se, verdict] = leads[i]->lead;
    if (i > 0) text += i + 1 == leads.size() ? " and " : ", ";
    text += fmt::format("{} ({}", leads[i]->length, signed_decimal(mean, 1));
    if (std::isfinite(se)) text += fmt::format(" ± {}", decimal(se, 1));
    text += ")";
  }
  return text;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::helps:
      return "helps";
    case Verdict::hurts:
      return "hurts";
    case Verdict::undecided:
      break;
  }
  return "undecided";
}

PairedLead paired_lead(const std::vector<double>& differences, bool more_is_better) {
  const auto count = static_cast<double>(differences.size());
  double sum = 0, squares = 0;
  for (const double difference : differences) sum += difference;
  PairedLead lead{.mean = sum / count};
  for (const double difference : differences)
    squares += (difference - lead.mean) * (difference - lead.mean);
  if (differences.size() < 2) {
    lead.sd = lead.se = std::numeric_limits<double>::quiet_NaN();
    return lead;
  }
  lead.sd = std::sqrt(squares / (count - 1));
  lead.se = lead.sd / std::sqrt(count);
  if (std::abs(lead.mean) > kStandardErrors * lead.se)
    lead.verdict = (lead.mean > 0) == more_is_better ? Verdict::helps : Verdict::hurts;
  return lead;
}

std::vector<Lead> leads_of(const json& rules) {
  std::vector<Lead> leads;
  const json* baseline = nullptr;
  for (const json& row : rules) {
    if (row.at("rule") == "standard" && row.at("kind") == "trained") baseline = &row;
  }
  if (baseline == nullptr) return leads;
  for (const json& row : rules) {
    if (&row == baseline) continue;
    for (const auto& [metric, more_is_better] : kMetrics) {
      for (const auto& [length, values] : differences(row, *baseline, metric)) {
        leads.push_back({row.at("rule"), row.at("kind"), metric, length,
                         static_cast<std::int64_t>(values.size()),
                         paired_lead(values, more_is_better)});
      }
    }
  }
  return leads;
}

json leads_json(const std::vector<Lead>& leads) {
  json result = json::array();
  for (const auto& [rule, kind, metric, length, seeds, lead] : leads) {
    result.push_back({{"rule", rule},
                      {"kind", kind},
                      {"against", "standard"},
                      {"length", length},
                      {"metric", metric},
                      {"mean", lead.mean},
                      {"sd", lead.sd},
                      {"se", lead.se},
                      {"seeds", seeds},
                      {"verdict", name_of(lead.verdict)}});
  }
  return result;
}

std::string row_name(const std::string& rule, const std::string& kind) {
  if (kind == "rescaled") return rule + " on the model of standard";
  return kind == "near" ? rule + ", near keys only" : rule;
}

std::vector<std::string> verdict_sentences(const std::vector<Lead>& leads) {
  std::vector<std::string> names;
  std::map<std::string, std::map<Verdict, std::vector<const Lead*>>> by_name;
  for (const Lead& lead : leads) {
    if (lead.metric != "accuracy" || lead.kind == "near") continue;
    const std::string name = row_name(lead.rule, lead.kind);
    if (!by_name.contains(name)) names.push_back(name);
    by_name[name][lead.lead.verdict].push_back(&lead);
  }
  std::vector<std::string> sentences;
  for (const std::string& name : names) {
    auto& with = by_name[name];
    sentences.push_back(fmt::format("{} helps {}, hurts {}, undecided {}.", name,
                                    places(with[Verdict::helps]), places(with[Verdict::hurts]),
                                    places(with[Verdict::undecided])));
  }
  return sentences;
}

}  // namespace isentrope::report
