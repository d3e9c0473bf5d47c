// The operators on rules: text, JSON, numbers, the catalogue, and the rule of a model's
// config.json.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule_json.h"

namespace isentrope::stable {

void rule_text(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::string text = Arguments(stack).text();
  stack[0] = to_value(parsed_rule(text).text());
}

void rule_to_json(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::string text = Arguments(stack).text();
  stack[0] = to_value(to_json(parsed_rule(text)));
}

void rule_from_json(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::string json = Arguments(stack).text();
  stack[0] = to_value(scale_rule_from_json(json).text());
}

void rule_lambda(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const std::string text = from.text();
  const std::int64_t keys = from.integer(), dim = from.integer(), head = from.integer();
  if (keys < 0) throw Error("[lambda_] n must not be negative; got " + std::to_string(keys));
  stack[0] = to_value(
      parsed_rule(text).lambda({.visible = keys, .position = keys - 1, .total = keys}, dim, head));
}

void rule_reads_position(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::string text = Arguments(stack).text();
  const auto terms = parsed_rule(text).terms();
  const bool reads = std::ranges::any_of(terms, [](const ScaleRule::Term& term) {
    const LengthSource source = term.form.length.source;
    return term.form.growth != Growth::one &&
           (source == LengthSource::position || source == LengthSource::total);
  });
  stack[0] = static_cast<StableIValue>(reads);
}

// {"name": ["parameter", ...], ...}: what a front end's own constructors are held to.
void rule_catalogue(StableIValue* stack, std::uint64_t, std::uint64_t) {
  nlohmann::ordered_json catalogue;
  for (const RuleInfo& rule : isentrope::rule_catalogue()) {
    auto& parameters = catalogue[std::string(rule.name)] = nlohmann::ordered_json::array();
    for (const RuleParameter& parameter : rule.parameters) parameters.push_back(parameter.name);
  }
  stack[0] = to_value(catalogue.dump());
}

void model_scale(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const ModelScale scale = scale_of_config(Arguments(stack).text());
  const nlohmann::ordered_json result{
      {"rule", scale.rule.text()}, {"elsewhere", scale.elsewhere.text()}, {"layers", scale.layers},
      {"dim", scale.dim},          {"soft_cap", scale.soft_cap},          {"keys", scale.keys},
      {"notes", scale.notes}};
  stack[0] = to_value(result.dump());
}

}  // namespace isentrope::stable
