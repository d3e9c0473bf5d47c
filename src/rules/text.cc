// The text form of a rule: printing and parsing.

#include "src/rules/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "isentrope/error.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "src/rules/domain.h"
#include "src/rules/number_text.h"
#include "src/rules/split.h"

namespace isentrope {
namespace {

constexpr std::array<std::string_view, 4> kSourceNames = {"visible", "position", "total", "fixed"};
constexpr std::array<std::string_view, 6> kPolicyKeys = {"length", "n_min", "n_max",
                                                         "offset", "where", "scale_bias"};
constexpr std::size_t kLongestText = 1 << 20;

// Returns a user's text for a message: one line, shortened.
std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string line(text.substr(0, kLongest));
  for (char& c : line) c = std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  return '"' + line + (text.size() > kLongest ? "...\"" : "\"");
}

std::string list_text(const PerHead& values) {
  if (values.size() == 1) return number_text(values[0]);
  std::string text = "[";
  for (const double value : values)
    text.append(text.size() > 1 ? "," : "").append(number_text(value));
  return text.append("]");
}

std::string argument_text(const RuleParameter& parameter, const PerHead& values) {
  if (parameter.kind == ParameterKind::growth) return growth_name(static_cast<Growth>(values[0]));
  return list_text(values);
}

}  // namespace

std::string_view source_name(LengthSource source) {
  return kSourceNames[static_cast<std::size_t>(source)];
}

std::vector<NamedText> argument_texts(const ScaleRule::Term& term) {
  const RuleInfo& rule = *find_rule(term.name);
  const ClosedForm default_form = rule.form(term.arguments);
  std::vector<NamedText> texts;
  for (std::size_t i = 0; i < term.arguments.size(); ++i) {
    texts.push_back(
        {rule.parameters[i].name, argument_text(rule.parameters[i], term.arguments[i])});
  }
  const LengthPolicy &length = term.form.length, &default_length = default_form.length;
  if (length.source != default_length.source || length.fixed != default_length.fixed) {
    texts.push_back({"length", length.source == LengthSource::fixed
                                   ? number_text(length.fixed)
                                   : std::string(source_name(length.source))});
  }
  if (length.n_min != default_length.n_min) texts.push_back({"n_min", number_text(length.n_min)});
  if (length.n_max != default_length.n_max) texts.push_back({"n_max", number_text(length.n_max)});
  if (length.offset != default_length.offset)
    texts.push_back({"offset", number_text(length.offset)});
  if (term.form.place != default_form.place) {
    texts.push_back({"where", term.form.place == ScalePlace::pre_cap ? "pre_cap" : "post_cap"});
  }
  if (term.form.scale_bias != default_form.scale_bias) {
    texts.push_back({"scale_bias", term.form.scale_bias ? "true" : "false"});
  }
  return texts;
}

namespace {

std::string term_text(const ScaleRule::Term& term) {
  std::string text(term.name);
  char separator = '(';
  for (const auto& [name, value] : argument_texts(term)) {
    text.append(1, separator).append(name).append("=").append(value);
    separator = ',';
  }
  return separator == '(' ? text : text.append(")");
}

double parse_number(std::string_view name, std::string_view text) {
  const auto value = number_of(text);
  if (!value) reject(std::string(name) + " must be a number", quoted(text));
  return *value;
}

PerHead parse_values(const RuleParameter& parameter, std::string_view text) {
  if (parameter.kind == ParameterKind::growth) {
    const auto found = std::ranges::find(kGrowthNames, text);
    if (found == kGrowthNames.end()) {
      reject("growth must be one of one, log, log_floor, log_ratio, sphere_gap, power",
             quoted(text));
    }
    return {static_cast<double>(found - kGrowthNames.begin())};
  }
  if (!text.starts_with('[')) return {parse_number(parameter.name, text)};
  if (!text.ends_with(']')) reject(std::string(parameter.name) + " must end with ]", quoted(text));
  PerHead values;
  for (const auto part : split_outside_brackets(text.substr(1, text.size() - 2), ',')) {
    values.push_back(parse_number(parameter.name, part));
  }
  return values;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  const auto best = nearest(word, candidates);
  return best.empty() ? "" : " (did you mean " + std::string(best) + "?)";
}

[[noreturn]] void reject_name(std::string_view name, std::string_view text) {
  std::string rules;
  for (const RuleInfo& rule : rule_catalogue()) {
    rules.append(rules.empty() ? "" : ", ").append(signature(rule));
  }
  throw Error("[scale_rule] a rule must be one of " + rules + "; got " + quoted(text) +
              suggestion(name, ScaleRule::names()));
}

[[noreturn]] void reject_argument(const RuleInfo& rule, std::string_view name) {
  std::vector<std::string_view> known;
  for (const RuleParameter& parameter : rule.parameters) known.push_back(parameter.name);
  known.insert(known.end(), kPolicyKeys.begin(), kPolicyKeys.end());
  std::string list;
  for (const auto key : known) list.append(list.empty() ? "" : ", ").append(key);
  throw Error("[scale_rule] an argument of " + std::string(rule.name) + " must be one of " + list +
              "; got " + quoted(name) + suggestion(name, known));
}

// Applies length=..., n_min=..., where=... to a rule; returns false for any other key.
bool apply_policy(ScaleRule& rule, std::string_view key, std::string_view value) {
  ScaleRule::LengthChange length;
  if (key == "length") {
    const auto found = std::ranges::find(kSourceNames, value);
    const bool named = found != kSourceNames.end() && *found != "fixed";
    const auto number = number_of(value);
    if (!named && !number)
      reject("length must be visible, position, total or a number", quoted(value));
    if (named) {
      length.source = static_cast<LengthSource>(found - kSourceNames.begin());
    } else {
      length.fixed = number;
    }
  } else if (key == "n_min") {
    length.n_min = parse_number(key, value);
  } else if (key == "n_max") {
    length.n_max = parse_number(key, value);
  } else if (key == "offset") {
    length.offset = parse_number(key, value);
  } else if (key == "where") {
    if (value != "pre_cap" && value != "post_cap")
      reject("where must be pre_cap or post_cap", quoted(value));
    rule = rule.with_place(value == "pre_cap" ? ScalePlace::pre_cap : ScalePlace::post_cap);
  } else if (key == "scale_bias") {
    if (value != "true" && value != "false")
      reject("scale_bias must be true or false", quoted(value));
    rule = rule.with_scaled_bias(value == "true");
  } else {
    return false;
  }
  rule = rule.with_length(length);
  return true;
}

struct Argument {
  std::string_view key, value;
};

std::vector<Argument> parse_arguments(const RuleInfo& rule, std::string_view text) {
  std::vector<Argument> arguments;
  if (trimmed(text).empty()) return arguments;
  for (const auto part : split_outside_brackets(text, ',')) {
    const auto equals = part.find('=');
    if (equals != std::string_view::npos) {
      arguments.push_back({trimmed(part.substr(0, equals)), trimmed(part.substr(equals + 1))});
    } else if (arguments.size() < rule.parameters.size() && !part.empty()) {
      arguments.push_back({rule.parameters[arguments.size()].name, part});
    } else {
      reject_argument(rule, part);
    }
    const auto same = [&](const Argument& other) { return other.key == arguments.back().key; };
    if (std::ranges::count_if(arguments, same) > 1) {
      reject("an argument must be given once", quoted(arguments.back().key));
    }
  }
  return arguments;
}

ScaleRule parse_term(std::string_view text) {
  const auto open = text.find('(');
  const std::string_view name = trimmed(text.substr(0, open));
  const RuleInfo* info = find_rule(name);
  if (info == nullptr) reject_name(name, text);
  if (open != std::string_view::npos && !text.ends_with(')'))
    reject("a rule must end with )", quoted(text));
  const auto inside = open == std::string_view::npos
                          ? std::string_view{}
                          : text.substr(open + 1, text.size() - open - 2);
  const std::vector<Argument> arguments = parse_arguments(*info, inside);
  std::vector<PerHead> values;
  for (const RuleParameter& parameter : info->parameters) {
    const auto found = std::ranges::find(arguments, parameter.name, &Argument::key);
    values.push_back(found == arguments.end() ? PerHead{} : parse_values(parameter, found->value));
  }
  ScaleRule rule = ScaleRule::make(name, std::move(values));
  // The bounds of the length depend on each other, so the larger one is applied first.
  for (const bool upper : {true, false}) {
    for (const auto& [key, value] : arguments) {
      if (std::ranges::find(info->parameters, key, &RuleParameter::name) != info->parameters.end())
        continue;
      if ((key == "n_max") == upper && !apply_policy(rule, key, value)) reject_argument(*info, key);
    }
  }
  return rule;
}

}  // namespace

std::string ScaleRule::text() const {
  std::string text;
  for (const Term& term : terms_) text.append(text.empty() ? "" : " * ").append(term_text(term));
  return text;
}

ScaleRule ScaleRule::parse(std::string_view text) {
  if (text.size() > kLongestText) {
    throw Error("[scale_rule] a rule must be at most " + std::to_string(kLongestText) +
                " characters long; got " + std::to_string(text.size()));
  }
  const auto parts = split_outside_brackets(text, '*');
  ScaleRule rule = parse_term(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) rule = rule * parse_term(parts[i]);
  return rule;
}

}  // namespace isentrope
