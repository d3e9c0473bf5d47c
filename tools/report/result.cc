#include "tools/report/result.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tools/analysis/records.h"
#include "tools/report/document.h"
#include "tools/report/verdict_words.h"

namespace isentrope::report {
namespace {

using analysis::Lead;
using analysis::Verdict;

constexpr const char* kDocumentKind = "extrapolation";
constexpr std::string_view kKinds[] = {"trained",     "rescaled", "near",        "frozen",
                                       "frozen_near", "growing",  "growing_near"};

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

std::vector<double> numbers_of(const Value& value) {
  std::vector<double> numbers;
  for (const Value& element : value.elements()) numbers.push_back(element.number());
  return numbers;
}

Measures measures_of(const Value& value) {
  return {by_length(value["accuracy"]), by_length(value["cross_entropy"]),
          by_length(value["entropy"]),  by_length(value["gradient_mass"]),
          by_length(value["distance"]), by_length(value["share_beyond"])};
}

RuleResult rule_of(const Value& value) {
  RuleResult result;
  result.rule = value["rule"].text();
  const Value kind = value["kind"];
  result.kind = kind.is_null() ? "trained" : kind.text();
  if (std::ranges::find(kKinds, result.kind) == std::end(kKinds))
    kind.refuse("trained, rescaled, near or a probe");
  result.name = row_name(result.rule, result.kind);
  result.mean = measures_of(value);
  result.spread = measures_of(value["spread"]);
  for (const Value& seed : value["seeds"].elements()) {
    const Value number = seed["seed"];
    result.seeds.push_back(
        {number.is_null() ? std::nullopt : std::optional(number.integer()), measures_of(seed)});
  }
  result.loss = numbers_of(value["loss"]);
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
  Lead lead{
      .rule = value["rule"].text(), .kind = value["kind"].text(), .metric = value["metric"].text()};
  lead.length = value["length"].positive();
  lead.seeds = {.pairs = value["seeds"].positive(),
                .mean = value["mean"].number(),
                .sd = value["sd"].number(),
                .se = value["se"].number(),
                .low = value["low"].number(),
                .high = value["high"].number(),
                .p = value["p"].number()};
  lead.adjusted_p = value["adjusted_p"].number();
  for (const Value& row : value["also"].elements())
    lead.also.push_back({row["rule"].text(), row["kind"].text()});
  const std::string verdict = value["verdict"].text();
  for (const Verdict known : {Verdict::helps, Verdict::hurts, Verdict::undecided}) {
    if (verdict == name_of(known)) lead.verdict = known;
  }
  if (verdict != name_of(lead.verdict)) value["verdict"].refuse("helps, hurts or undecided");
  return lead;
}

std::vector<Lead> leads_of(const Value& value) {
  std::vector<Lead> leads;
  for (const Value& lead : value.elements()) leads.push_back(lead_of(lead));
  return leads;
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
  return leads_of(Value(document, kDocumentKind)["leads"]);
}

Result parse_result(const nlohmann::json& parsed) {
  const Value document(parsed, kDocumentKind);
  if (const Value schema = document["schema"]; !schema.is_null() && schema.number() != 3)
    schema.refuse("3, the one this program reads");
  Result result;
  for (const Value& length : document["lengths"].elements())
    result.lengths.push_back(length.positive());
  if (result.lengths.empty()) document["lengths"].refuse("an array of positive integers");
  std::ranges::sort(result.lengths);
  const auto repeated = std::ranges::unique(result.lengths);
  result.lengths.erase(repeated.begin(), repeated.end());
  for (const Value& rule : document["rules"].elements()) result.rules.push_back(rule_of(rule));
  if (result.rules.empty()) document["rules"].refuse("an array of at least one object");
  result.version = text_of(document["version"]);
  result.command = text_of(document["command"]);
  result.date = text_of(document["date"]);
  result.config = document["config"].object();
  result.corpus = document["corpus"].object();
  result.machine = document["machine"].object();
  if (const Value length = document["train_length"]; !length.is_null())
    result.train_length = length.positive();
  result.gains = gains_of(document["gains"]);
  result.leads = leads_of(document["leads"]);
  return result;
}

}  // namespace isentrope::report
