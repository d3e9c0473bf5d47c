#include "report/result.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "isentrope/error.h"
#include "lab/analysis/records.h"
#include "report/numbers.h"
#include "report/verdict_words.h"

namespace isentrope::report {
namespace {

using analysis::Lead;
using analysis::Verdict;
using nlohmann::json;

constexpr const char* kKinds[] = {"trained",     "rescaled", "near",        "frozen",
                                  "frozen_near", "growing",  "growing_near"};

[[noreturn]] void fail(const std::string& key, const std::string& required, const json& got) {
  using error_handler = json::error_handler_t;
  std::string text =
      got.is_structured() ? got.type_name() : got.dump(-1, ' ', true, error_handler::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw Error(fmt::format("[extrapolation_report] {} must be {}; got {}", key, required, text));
}

// Null when the key is absent, and when it is null: that is how JSON writes a number that is not
// finite.
const json& member(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string text_at(const json& object, const char* key) {
  const json& value = member(object, key);
  if (value.is_null()) return {};
  if (!value.is_string()) fail(key, "a string", value);
  return value;
}

json object_at(const json& object, const char* key, const std::string& where = {}) {
  const json& value = member(object, key);
  if (value.is_null()) return json::object();
  if (!value.is_object()) fail(where + key, "an object", value);
  return value;
}

std::int64_t positive(const json& value, const std::string& key) {
  const bool fits =
      value.is_number_integer() && value > 0 && value <= std::numeric_limits<std::int64_t>::max();
  if (!fits) fail(key, "a positive integer", value);
  return value;
}

std::optional<std::int64_t> length_of(std::string_view text) {
  std::int64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (error != std::errc() || end != text.data() + text.size() || length <= 0) return std::nullopt;
  return length;
}

ByLength by_length(const json& rule, const char* name, const std::string& where) {
  const json& value = member(rule, name);
  const std::string key = where + "." + name;
  ByLength result;
  if (value.is_null()) return result;
  if (!value.is_object()) fail(key, "an object of numbers by length", value);
  for (const auto& [text, number] : value.items()) {
    const auto length = length_of(text);
    if (!length) fail(key, "an object whose keys are lengths", text);
    if (number.is_null()) continue;
    if (!number.is_number()) fail(key + "." + text, "a number", number);
    if (std::isfinite(number.get<double>())) result[*length] = number;
  }
  return result;
}

std::vector<double> losses(const json& rule, const std::string& where) {
  const json& value = member(rule, "loss");
  const std::string key = where + ".loss";
  std::vector<double> result;
  if (value.is_null()) return result;
  if (!value.is_array()) fail(key, "an array of numbers", value);
  for (const json& number : value) {
    if (!number.is_number() && !number.is_null()) fail(key, "an array of numbers", number);
    result.push_back(number.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                      : number.get<double>());
  }
  return result;
}

Measures measures_of(const json& object, const std::string& where) {
  return {by_length(object, "accuracy", where), by_length(object, "cross_entropy", where),
          by_length(object, "entropy", where),  by_length(object, "gradient_mass", where),
          by_length(object, "distance", where), by_length(object, "share_beyond", where)};
}

std::vector<SeedResult> seeds_of(const json& rule, const std::string& where) {
  const json& value = member(rule, "seeds");
  std::vector<SeedResult> result;
  if (value.is_null()) return result;
  if (!value.is_array()) fail(where + ".seeds", "an array of objects", value);
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string key = fmt::format("{}.seeds[{}]", where, i);
    if (!value[i].is_object()) fail(key, "an object", value[i]);
    const json& seed = member(value[i], "seed");
    if (!seed.is_null() && !seed.is_number_integer()) fail(key + ".seed", "an integer", seed);
    result.push_back({seed.is_null() ? std::nullopt : std::optional<std::int64_t>(seed),
                      measures_of(value[i], key)});
  }
  return result;
}

RuleResult rule_result(const json& rule, const std::string& where) {
  if (!rule.is_object()) fail(where, "an object", rule);
  const json& name = member(rule, "rule");
  if (!name.is_string()) fail(where + ".rule", "the text of a scale rule", name);
  RuleResult result;
  result.rule = name;
  const json& kind = member(rule, "kind");
  if (!kind.is_null() && std::ranges::find(kKinds, kind) == std::end(kKinds))
    fail(where + ".kind", "trained, rescaled, near or a probe", kind);
  result.kind = kind.is_null() ? "trained" : kind.get<std::string>();
  result.name = row_name(result.rule, result.kind);
  result.mean = measures_of(rule, where);
  result.spread = measures_of(object_at(rule, "spread", where + "."), where + ".spread");
  result.seeds = seeds_of(rule, where);
  result.loss = losses(rule, where);
  if (const json& seconds = member(rule, "seconds_per_step"); !seconds.is_null()) {
    if (!seconds.is_number()) fail(where + ".seconds_per_step", "a number", seconds);
    result.seconds_per_step = seconds;
  }
  return result;
}

std::vector<std::int64_t> lengths_of(const json& document) {
  const json& lengths = member(document, "lengths");
  if (!lengths.is_array() || lengths.empty())
    fail("lengths", "an array of positive integers", lengths);
  std::set<std::int64_t> result;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    result.insert(positive(lengths[i], fmt::format("lengths[{}]", i)));
  }
  return {result.begin(), result.end()};
}

GainCurves gains_of(const json& document) {
  const json gains = object_at(document, "gains");
  GainCurves curves;
  if (gains.empty()) return curves;
  const json& axis = member(gains, "gain");
  if (!axis.is_array()) fail("gains.gain", "an array of numbers", axis);
  for (const json& gain : axis) {
    if (!gain.is_number()) fail("gains.gain", "an array of numbers", gain);
    curves.gains.push_back(gain);
  }
  const json by_n = object_at(gains, "accuracy", "gains.");
  for (const auto& [length, values] : by_n.items()) {
    const auto n = length_of(length);
    if (!n || !values.is_array() || values.size() != axis.size())
      fail("gains.accuracy." + length, "as many numbers as there are gains", values);
    for (const json& value : values) {
      if (!value.is_number() && !value.is_null())
        fail("gains.accuracy." + length, "numbers", value);
      curves.curve[*n].push_back(number_of(value));
    }
  }
  const json of_rules = object_at(gains, "of_rules", "gains.");
  for (const auto& [rule, _] : of_rules.items())
    curves.of_rules[rule] = by_length(of_rules, rule.c_str(), "gains.of_rules");
  return curves;
}

std::vector<analysis::RowName> also_of(const json& lead, const std::string& where) {
  std::vector<analysis::RowName> names;
  const json& also = member(lead, "also");
  if (also.is_null()) return names;
  if (!also.is_array()) fail(where + ".also", "an array of rows", also);
  for (const json& row : also) {
    if (!row.is_object() || !member(row, "rule").is_string() || !member(row, "kind").is_string())
      fail(where + ".also", "rows, each with its rule and kind", row);
    names.push_back({row["rule"], row["kind"]});
  }
  return names;
}

Lead lead_of(const json& lead, const std::string& where) {
  if (!lead.is_object()) fail(where, "an object", lead);
  const auto text = [&](const char* key) {
    const json& value = member(lead, key);
    if (!value.is_string()) fail(where + "." + key, "a string", value);
    return value.get<std::string>();
  };
  const auto number = [&](const char* key) {
    const json& value = member(lead, key);
    if (!value.is_number() && !value.is_null()) fail(where + "." + key, "a number", value);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  };
  Lead result{.rule = text("rule"), .kind = text("kind"), .metric = text("metric")};
  result.length = positive(member(lead, "length"), where + ".length");
  result.seeds = {.pairs = positive(member(lead, "seeds"), where + ".seeds"),
                  .mean = number("mean"),
                  .sd = number("sd"),
                  .se = number("se"),
                  .low = number("low"),
                  .high = number("high"),
                  .p = number("p")};
  result.adjusted_p = number("adjusted_p");
  result.also = also_of(lead, where);
  const std::string verdict = text("verdict");
  for (const Verdict known : {Verdict::helps, Verdict::hurts, Verdict::undecided}) {
    if (verdict == name_of(known)) result.verdict = known;
  }
  if (verdict != name_of(result.verdict))
    fail(where + ".verdict", "helps, hurts or undecided", lead.at("verdict"));
  return result;
}

}  // namespace

ByLength Result::uniform_entropy() const {
  const bool causal = member(config, "objective") == "causal";
  ByLength entropy;
  for (const std::int64_t n : lengths) entropy[n] = analysis::uniform_entropy(n, causal);
  return entropy;
}

std::vector<Lead> parse_leads(const json& leads) {
  std::vector<Lead> result;
  if (leads.is_null()) return result;
  if (!leads.is_array()) fail("leads", "an array of objects", leads);
  for (std::size_t i = 0; i < leads.size(); ++i)
    result.push_back(lead_of(leads[i], fmt::format("leads[{}]", i)));
  return result;
}

Result parse_result(const json& document) {
  if (!document.is_object()) fail("a result", "an object", document);
  if (const json& schema = member(document, "schema"); !schema.is_null() && schema != 3) {
    fail("schema", "3, the one this program reads", schema);
  }
  Result result;
  result.lengths = lengths_of(document);
  const json& rules = member(document, "rules");
  if (!rules.is_array() || rules.empty()) fail("rules", "an array of at least one object", rules);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    result.rules.push_back(rule_result(rules[i], fmt::format("rules[{}]", i)));
  }
  result.version = text_at(document, "version");
  result.command = text_at(document, "command");
  result.date = text_at(document, "date");
  result.config = object_at(document, "config");
  result.corpus = object_at(document, "corpus");
  result.machine = object_at(document, "machine");
  if (const json& length = member(document, "train_length"); !length.is_null()) {
    result.train_length = positive(length, "train_length");
  }
  result.gains = gains_of(document);
  result.leads = parse_leads(member(document, "leads"));
  return result;
}

}  // namespace isentrope::report
