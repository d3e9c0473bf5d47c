#include "report/result.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "isentrope/error.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

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
  return {by_length(object, "accuracy", where), by_length(object, "entropy", where),
          by_length(object, "gradient_mass", where)};
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
  result.mean = measures_of(rule, where);
  result.spread = measures_of(object_at(rule, "spread", where + "."), where + ".spread");
  result.seeds = seeds_of(rule, where);
  result.loss = losses(rule, where);
  if (const json& seconds = member(rule, "seconds_per_step"); !seconds.is_null()) {
    if (!seconds.is_number()) fail(where + ".seconds_per_step", "a number", seconds);
    result.seconds_per_step = seconds;
  }
  if (const json& other = member(rule, "trained_as"); !other.is_null()) {
    if (!other.is_string()) fail(where + ".trained_as", "the text of a scale rule", other);
    result.trained_as = other;
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

}  // namespace

Result parse_result(const json& document) {
  if (!document.is_object()) fail("a result", "an object", document);
  if (const json& schema = member(document, "schema"); !schema.is_null() && schema != 1) {
    fail("schema", "1, the one this program reads", schema);
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
  return result;
}

}  // namespace isentrope::report
