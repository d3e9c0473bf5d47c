// Operators on rules: text, JSON, tables, the catalogue, and the rule of a model's config.json.

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "isentrope/config/scale_rule_json.h"
#include "isentrope/rule_catalogue.h"
#include "src/rules/numbers.h"

namespace isentrope::stable {

void rule_text(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const TorchText text = Arguments(stack).text();
  stack[0] = to_value(parsed_rule(text.view()).text());
}

void rule_to_json(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const TorchText text = Arguments(stack).text();
  stack[0] = to_value(to_json(parsed_rule(text.view())));
}

void rule_from_json(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const TorchText json = Arguments(stack).text();
  stack[0] = to_value(scale_rule_from_json(json.view()).text());
}

void rule_lambda(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const TorchText text = from.text();
  const std::int64_t keys = from.integer(), dim = from.integer(), head = from.integer();
  if (keys < 0) throw Error("[lambda_] n must not be negative; got " + std::to_string(keys));
  stack[0] =
      to_value(parsed_rule(text.view())
                   .lambda({.visible = keys, .position = keys - 1, .total = keys}, dim, head));
}

void rule_heads(StableIValue* stack, std::uint64_t, std::uint64_t) {
  stack[0] = static_cast<StableIValue>(parsed_rule(Arguments(stack).text().view()).heads());
}

void rule_of_heads(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const TorchText text = from.text();
  const std::int64_t first = from.integer(), count = from.integer();
  stack[0] = to_value(parsed_rule(text.view()).of_heads(first, count).text());
}

// Returns whether rows of different lengths may have different scales.
void rule_reads_length(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const TorchText text = Arguments(stack).text();
  const ScaleRule& rule = parsed_rule(text.view());
  stack[0] = static_cast<StableIValue>(rule.reads(LengthSource::visible) ||
                                       rule.reads(LengthSource::position) ||
                                       rule.reads(LengthSource::total));
}

void rule_reads_position(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const TorchText text = Arguments(stack).text();
  const ScaleRule& rule = parsed_rule(text.view());
  stack[0] = static_cast<StableIValue>(rule.reads(LengthSource::position) ||
                                       rule.reads(LengthSource::total));
}

// Returns the tables of a rule for kernels on a device: float64 [3, heads, count], as in
// src/rules/numbers.h. source: 0 visible, 1 position, 2 total.
void rule_table(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const TorchText text = from.text();
  const auto source = static_cast<LengthSource>(from.integer());
  const std::int64_t dim = from.integer(), first = from.integer(), count = from.integer();
  const bool capped = from.integer() != 0;
  const RuleNumbers numbers =
      rule_numbers(parsed_rule(text.view()), source, dim, first, count, capped);
  TorchTensor table(std::array{std::int64_t{3}, numbers.heads, numbers.count},
                    aoti_torch_dtype_float64());
  std::ranges::copy(numbers.factors, static_cast<double*>(table.write()));
  stack[0] = to_value(std::move(table));
}

// Returns {"name": ["parameter", ...], ...}, against which a front end checks its constructors.
void rule_catalogue(StableIValue* stack, std::uint64_t, std::uint64_t) {
  nlohmann::ordered_json catalogue;
  for (const RuleInfo& rule : isentrope::rule_catalogue()) {
    auto& parameters = catalogue[std::string(rule.name)] = nlohmann::ordered_json::array();
    for (const RuleParameter& parameter : rule.parameters) parameters.push_back(parameter.name);
  }
  stack[0] = to_value(catalogue.dump());
}

void model_scale(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const ModelScale scale = scale_of_config(Arguments(stack).text().view());
  const nlohmann::ordered_json result{
      {"known", scale.known},       {"model_type", scale.model_type},
      {"rule", scale.rule.text()},  {"elsewhere", scale.elsewhere.text()},
      {"layers", scale.layers},     {"dim", scale.dim},
      {"soft_cap", scale.soft_cap}, {"keys", scale.keys},
      {"notes", scale.notes}};
  stack[0] = to_value(result.dump());
}

}  // namespace isentrope::stable
