#include "isentrope/config/scale_rule_json.h"

#include <cmath>
#include <utility>

#include "isentrope/error.h"
#include "src/config/parse_json.h"
#include "src/rules/number_text.h"
#include "src/rules/text.h"

namespace isentrope {
namespace {

// Numbers, lists of numbers and booleans become JSON's own; names and infinities stay strings.
Json value_of(const std::string& text) {
  if (text.starts_with('[')) return parse_json("to_json", text);
  Json json;
  const auto number = number_of(text);
  if (text == "true" || text == "false") {
    json.value = text == "true";
  } else if (!number || text.ends_with("inf")) {
    json.value = text;
  } else if (*number == std::floor(*number) && std::abs(*number) < 1e15) {
    json.value = static_cast<std::int64_t>(*number);  // without ".0", as it was written
  } else {
    json.value = *number;
  }
  return json;
}

// The length that a term counts is always written, so that a file does not depend on defaults.
Json json_of(const ScaleRule::Term& term) {
  Json json;
  json.value = nlohmann::ordered_json::object();
  json.member("rule").value = term.name;
  for (const auto& [name, text] : argument_texts(term)) {
    Json& member = json.member(name);
    Json value = value_of(text);
    member.value = std::move(value.value);
    member.items = std::move(value.items);
  }
  const LengthSource source = term.form.length.source;
  if (term.form.growth != Growth::one && source != LengthSource::fixed)
    json.member("length").value = source_name(source);
  return json;
}

[[noreturn]] void reject(const std::string& required, const Json& got) {
  throw Error("[scale_rule_from_json] " + required + "; got " + shortened(got));
}

// Returns a value's text. Throws Error for one that could end its argument in the text form.
std::string text_of(const std::string& name, const Json& json) {
  const auto& value = json.value;
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return number_text(value.get<double>());
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (!text.empty() && text.find_first_of("()[],=* ") == std::string::npos) return text;
  }
  if (json.is_array() && !json.items.empty()) {
    std::string list;
    for (const Json& item : json.items) {
      if (!item.value.is_number()) reject(name + " must hold numbers", json);
      list.append(list.empty() ? "[" : ",").append(number_text(item.value.get<double>()));
    }
    return list.append("]");
  }
  reject(name + " must be a number, numbers, a name or a boolean", json);
}

std::string term_of(const Json& json) {
  const Json* const rule = json.find("rule");
  if (rule == nullptr || !rule->value.is_string())
    reject("a rule must be an object with a \"rule\"", json);
  std::string text = text_of("rule", *rule);
  char separator = '(';
  for (const Json& argument : json.items) {
    const std::string& name = argument.name;
    if (name == "rule") continue;
    if (name.empty() || name.find_first_of("()[],=* ") != std::string::npos)
      reject("an argument's name", {.name = {}, .value = name});
    text.append(1, separator).append(name).append("=").append(text_of(name, argument));
    separator = ',';
  }
  return separator == '(' ? text : text.append(")");
}

}  // namespace

std::string to_json(const ScaleRule& rule) {
  if (rule.terms().size() == 1) return json_of(rule.terms().front()).dump();
  Json product;
  product.value = nlohmann::ordered_json::object();
  Json& factors = product.member("product");
  factors.value = nlohmann::ordered_json::array();
  for (const auto& term : rule.terms()) factors.items.push_back(json_of(term));
  return product.dump();
}

ScaleRule scale_rule_from_json(std::string_view text) {
  const Json json = parse_json("scale_rule_from_json", text);
  if (json.value.is_string()) return ScaleRule::parse(json.value.get<std::string>());
  const Json* const factors = json.find("product");
  if (factors == nullptr) return ScaleRule::parse(term_of(json));
  if (!factors->is_array() || factors->items.empty() || json.items.size() != 1)
    reject("a product must be a list of rules and nothing else", json);
  std::string product;
  for (const Json& factor : factors->items)
    product.append(product.empty() ? "" : "*").append(term_of(factor));
  return ScaleRule::parse(product);
}

}  // namespace isentrope
