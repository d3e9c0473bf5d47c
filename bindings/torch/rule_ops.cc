// The operators on rules: text, JSON, numbers, the catalogue, and the rule of a model's
// config.json.

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "isentrope/config/scale_rule_json.h"
#include "isentrope/rule_catalogue.h"

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

void rule_heads(StableIValue* stack, std::uint64_t, std::uint64_t) {
  stack[0] = static_cast<StableIValue>(parsed_rule(Arguments(stack).text()).heads());
}

void rule_of_heads(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const std::string text = from.text();
  const std::int64_t first = from.integer(), count = from.integer();
  stack[0] = to_value(parsed_rule(text).of_heads(first, count).text());
}

// Whether rows of different lengths may have different scales.
void rule_reads_length(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::string text = Arguments(stack).text();
  const ScaleRule& rule = parsed_rule(text);
  stack[0] = static_cast<StableIValue>(rule.reads(LengthSource::visible) ||
                                       rule.reads(LengthSource::position) ||
                                       rule.reads(LengthSource::total));
}

void rule_reads_position(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::string text = Arguments(stack).text();
  const ScaleRule& rule = parsed_rule(text);
  stack[0] = static_cast<StableIValue>(rule.reads(LengthSource::position) ||
                                       rule.reads(LengthSource::total));
}

namespace {

// Which length a term reads: what reads none, the base included, goes with the visible keys.
LengthSource source_of(const ScaleRule::Term& term) {
  const LengthSource source = term.form.length.source;
  const bool reads = term.form.growth != Growth::one && source != LengthSource::fixed;
  return reads ? source : LengthSource::visible;
}

RowLength with(LengthSource source, std::int64_t u) {
  RowLength length{.visible = 1};
  (source == LengthSource::visible    ? length.visible
   : source == LengthSource::position ? length.position
                                      : length.total) = u;
  return length;
}

}  // namespace

// A rule in numbers, for kernels that look it up: float64 [3, heads, count], of lengths first,
// first + 1, ... the factor before the soft-cap, after it, and on the bias; without a soft-cap the
// first is their product. Of the rule's terms only those that read `source` (0 visible, 1 position,
// 2 total): the numbers of all sources multiply. Without such terms there are no numbers for
// position and total, and of visible the first two, for rows without keys and with some.
void rule_table(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments from(stack);
  const std::string text = from.text();
  const auto source = static_cast<LengthSource>(from.integer());
  const std::int64_t dim = from.integer(), first = from.integer();
  std::int64_t count = from.integer();
  const bool capped = from.integer() != 0;
  const ScaleRule& rule = parsed_rule(text);
  const auto reads = [&](const ScaleRule::Term& term) { return source_of(term) == source; };
  const bool visible = source == LengthSource::visible;
  const bool constant = std::ranges::none_of(rule.terms(), [&](const ScaleRule::Term& term) {
    return reads(term) && term.form.growth != Growth::one &&
           term.form.length.source != LengthSource::fixed;
  });
  if (constant) count = visible ? std::min<std::int64_t>(count, 2) : 0;
  TorchTensor table(std::array{std::int64_t{3}, rule.heads(), count}, aoti_torch_dtype_float64());
  auto* to = static_cast<double*>(table.write());
  const std::int64_t plane = rule.heads() * count;
  for (std::int64_t at = 0; at < plane; ++at) {
    const std::int64_t head = at / count;
    const RowLength length = with(source, first + at % count);
    double before = visible ? base_of(rule.terms().front().form, dim, head) : 1;
    double after = 1, on_bias = 1;
    for (const ScaleRule::Term& term : rule.terms()) {
      if (!reads(term)) continue;
      const double factor = factor_of(term.form, length, dim, head);
      (capped && term.form.place == ScalePlace::post_cap ? after : before) *= factor;
      if (term.form.scale_bias) on_bias *= factor;
    }
    to[at] = length.visible < 1 ? 0 : before;
    to[plane + at] = after;
    to[2 * plane + at] = on_bias;
  }
  stack[0] = to_value(std::move(table));
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
