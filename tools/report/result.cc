#include "tools/report/result.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "tools/analysis/records.h"
#include "tools/analysis/rows.h"
#include "tools/report/document.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using analysis::Lead;
using analysis::Verdict;

constexpr const char* kDocumentKind = "extrapolation";

// Parses the key of a member by length.
std::int64_t length_of(const std::string& key, const Value& object) {
  std::int64_t length = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), length);
  if (error != std::errc() || end != key.data() + key.size() || length <= 0)
    object.refuse("an object whose keys are lengths");
  return length;
}

ByLength by_length(const Value& value) {
  ByLength result;
  for (const auto& [key, member] : value.members()) {
    const double number = member.number();
    if (const auto length = length_of(key, value); std::isfinite(number)) result[length] = number;
  }
  return result;
}

// Returns the results of all elements.
template <typename Read>
auto each_of(const Value& value, const Read& read) {
  std::vector<decltype(read(value))> results;
  for (const Value& element : value.elements()) results.push_back(read(element));
  return results;
}

std::vector<double> numbers_of(const Value& value) {
  return each_of(value, std::mem_fn(&Value::number));
}

Measures measures_of(const Value& value) {
  Measures measures;
  for (const char* name : analysis::kMeasures) measures[name] = by_length(value[name]);
  return measures;
}

RuleResult rule_of(const Value& value) {
  const Value kind = value["kind"];
  RuleResult result{.rule = value["rule"].text(),
                    .kind = kind.is_null() ? "trained" : kind.text(),
                    .mean = measures_of(value),
                    .spread = measures_of(value["spread"]),
                    .loss = numbers_of(value["loss"])};
  if (!std::ranges::count(analysis::kKinds, result.kind))
    kind.refuse("trained, rescaled, near or a probe");
  result.name = row_name(result.rule, result.kind);
  for (const Value& seed : value["seeds"].elements()) {
    const Value number = seed["seed"];
    result.seeds.push_back(
        {number.is_null() ? std::nullopt : std::optional(number.integer()), measures_of(seed)});
  }
  if (const Value seconds = value["seconds_per_step"]; !seconds.is_null())
    result.seconds_per_step = seconds.number();
  return result;
}

GainCurves gains_of(const Value& value) {
  GainCurves curves;
  curves.gains = numbers_of(value["gain"]);
  for (const auto& [length, accuracy] : value["accuracy"].members()) {
    auto& curve = curves.curve[length_of(length, value["accuracy"])];
    curve = numbers_of(accuracy);
    if (curve.size() != curves.gains.size()) accuracy.refuse("as many numbers as there are gains");
  }
  for (const auto& [rule, gains] : value["of_rules"].members())
    curves.of_rules[rule] = by_length(gains);
  return curves;
}

Lead lead_of(const Value& value) {
  Lead lead{.rule = value["rule"].text(),
            .kind = value["kind"].text(),
            .metric = value["metric"].text(),
            .length = value["length"].positive(),
            .seeds = {.pairs = value["seeds"].positive(),
                      .mean = value["mean"].number(),
                      .sd = value["sd"].number(),
                      .se = value["se"].number(),
                      .low = value["low"].number(),
                      .high = value["high"].number(),
                      .p = value["p"].number()},
            .adjusted_p = value["adjusted_p"].number()};
  for (const Value& row : value["also"].elements())
    lead.also.push_back({row["rule"].text(), row["kind"].text()});
  const std::string verdict = value["verdict"].text();
  for (const Verdict known : {Verdict::helps, Verdict::hurts, Verdict::undecided}) {
    if (verdict == name_of(known)) lead.verdict = known;
  }
  if (verdict != name_of(lead.verdict)) value["verdict"].refuse("helps, hurts or undecided");
  return lead;
}

// Returns the text, or "" if it is absent.
std::string text_of(const Value& value) { return value.is_null() ? "" : value.text(); }

}  // namespace

ByLength Result::uniform_entropy() const {
  const bool causal = config.contains("objective") && config["objective"] == "causal";
  ByLength entropy;
  for (const std::int64_t n : lengths) entropy[n] = analysis::uniform_entropy(n, causal);
  return entropy;
}

std::vector<Lead> parse_leads(const nlohmann::json& leads) {
  const nlohmann::json document = {{"leads", leads}};
  return each_of(Value(document, kDocumentKind)["leads"], lead_of);
}

Result parse_result(const nlohmann::json& parsed) {
  const Value document(parsed, kDocumentKind);
  if (const Value schema = document["schema"]; !schema.is_null() && schema.number() != 3)
    schema.refuse("3, the one this program reads");
  Result result{.lengths = each_of(document["lengths"], std::mem_fn(&Value::positive)),
                .rules = each_of(document["rules"], rule_of),
                .version = text_of(document["version"]),
                .command = text_of(document["command"]),
                .date = text_of(document["date"]),
                .gains = gains_of(document["gains"]),
                .leads = each_of(document["leads"], lead_of),
                .config = document["config"].object(),
                .corpus = document["corpus"].object(),
                .machine = document["machine"].object()};
  if (result.lengths.empty()) document["lengths"].refuse("an array of positive integers");
  if (result.rules.empty()) document["rules"].refuse("an array of at least one object");
  std::ranges::sort(result.lengths);
  const auto repeated = std::ranges::unique(result.lengths);
  result.lengths.erase(repeated.begin(), repeated.end());
  if (const Value length = document["train_length"]; !length.is_null())
    result.train_length = length.positive();
  return result;
}

}  // namespace isentrope::report
