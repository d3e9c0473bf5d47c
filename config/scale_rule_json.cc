#include "isentrope/config/scale_rule_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "config/parse_json.h"
#include "isentrope/error.h"
#include "src/rule/number_text.h"
#include "src/rule/text.h"

namespace isentrope {
namespace {

using nlohmann::ordered_json;

// Numbers, lists of numbers and booleans become JSON's own; names and infinities stay strings.
ordered_json value_of(const std::string& text) {
  if (text.starts_with('[')) return ordered_json::parse(text);
  if (text == "true" || text == "false") return text == "true";
  const auto number = number_of(text);
  if (!number || text.ends_with("inf")) return text;
  // Whole numbers without ".0", as they were written.
  if (*number == std::floor(*number) && std::abs(*number) < 1e15)
    return static_cast<std::int64_t>(*number);
  return *number;
}

// Which length a term counts is written out, also where it is the rule's own: a file says the same
// whatever the defaults of its reader are.
ordered_json json_of(const ScaleRule::Term& term) {
  ordered_json json = {{"rule", term.name}};
  for (const auto& [name, value] : argument_texts(term)) json[std::string(name)] = value_of(value);
  const LengthSource source = term.form.length.source;
  if (term.form.growth != Growth::one && source != LengthSource::fixed)
    json["length"] = source_name(source);
  return json;
}

[[noreturn]] void reject(const std::string& required, const ordered_json& got) {
  throw Error("[scale_rule_from_json] " + required + "; got " + shortened(got));
}

// The text of a value; what could break out of an argument of the text form is no value.
std::string text_of(const std::string& name, const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return number_text(value.get<double>());
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (!text.empty() && text.find_first_of("()[],=* ") == std::string::npos) return text;
  }
  if (value.is_array() && !value.empty()) {
    std::string list;
    for (const auto& item : value) {
      if (!item.is_number()) reject(name + " must hold numbers", value);
      list.append(list.empty() ? "[" : ",").append(number_text(item.get<double>()));
    }
    return list.append("]");
  }
  reject(name + " must be a number, numbers, a name or a boolean", value);
}

std::string term_of(const ordered_json& json) {
  if (!json.is_object() || !json.contains("rule") || !json["rule"].is_string()) {
    reject("a rule must be an object with a \"rule\"", json);
  }
  std::string text = text_of("rule", json["rule"]);
  char separator = '(';
  for (const auto& [name, value] : json.items()) {
    if (name == "rule") continue;
    if (name.empty() || name.find_first_of("()[],=* ") != std::string::npos)
      reject("an argument's name", name);
    text.append(1, separator).append(name).append("=").append(text_of(name, value));
    separator = ',';
  }
  return separator == '(' ? text : text.append(")");
}

}  // namespace

std::string to_json(const ScaleRule& rule) {
  if (rule.terms().size() == 1) return json_of(rule.terms().front()).dump();
  ordered_json factors = ordered_json::array();
  for (const auto& term : rule.terms()) factors.push_back(json_of(term));
  return ordered_json{{"product", factors}}.dump();
}

ScaleRule scale_rule_from_json(std::string_view text) {
  const ordered_json json = parse_json("scale_rule_from_json", text);
  if (json.is_string()) return ScaleRule::parse(json.get<std::string>());
  if (!json.is_object() || !json.contains("product")) return ScaleRule::parse(term_of(json));
  const ordered_json& factors = json["product"];
  if (!factors.is_array() || factors.empty() || json.size() != 1) {
    reject("a product must be a list of rules and nothing else", json);
  }
  std::string product;
  for (const auto& factor : factors)
    product.append(product.empty() ? "" : "*").append(term_of(factor));
  return ScaleRule::parse(product);
}

}  // namespace isentrope
