// Operators on rules: text, JSON, tables, the catalogue, and the rule of a model's config.json.

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"
#include "bindings/torch/rule_python.h"
#include "isentrope/config/scale_rule_json.h"
#include "src/rules/numbers.h"

namespace isentrope::stable {
namespace {

// A rule, from its text.
class Rule {
 public:
  explicit Rule(Arguments& from) : text_(from) {}
  const ScaleRule& operator*() const { return parsed_rule(text_.view()); }
  const ScaleRule* operator->() const { return &**this; }

 private:
  TorchText text_;
};

std::string rule_text(const Rule& rule) { return rule->text(); }
std::string rule_to_json(const Rule& rule) { return to_json(*rule); }
std::string rule_from_json(const TorchText& json) {
  return scale_rule_from_json(json.view()).text();
}

double rule_lambda(const Rule& rule, std::int64_t keys, std::int64_t dim, std::int64_t head) {
  if (keys < 0) throw Error("[lambda_] n must not be negative; got " + std::to_string(keys));
  return rule->lambda({.visible = keys, .position = keys - 1, .total = keys}, dim, head);
}

std::int64_t rule_heads(const Rule& rule) { return rule->heads(); }

std::string rule_of_heads(const Rule& rule, std::int64_t first, std::int64_t count) {
  return rule->of_heads(first, count).text();
}

bool rule_reads_position(const Rule& rule) {
  return rule->reads(LengthSource::position) || rule->reads(LengthSource::total);
}

// Returns whether rows of different lengths may have different scales.
bool rule_reads_length(const Rule& rule) {
  return rule->reads(LengthSource::visible) || rule_reads_position(rule);
}

// Returns the tables of a rule for kernels on a device: float64 [3, heads, count], as in
// src/rules/numbers.h. source: 0 visible, 1 position, 2 total.
TorchTensor rule_table(const Rule& rule, std::int64_t source, std::int64_t dim, std::int64_t first,
                       std::int64_t count, bool capped) {
  const RuleNumbers numbers =
      rule_numbers(*rule, static_cast<LengthSource>(source), dim, first, count, capped);
  TorchTensor table(std::array{std::int64_t{3}, numbers.heads, numbers.count},
                    aoti_torch_dtype_float64());
  std::ranges::copy(numbers.factors, static_cast<double*>(table.write()));
  return table;
}

// Returns {"name": {"description", "parameters": [{"name", "type", "low", "high", "default"}]},
// ...}, from which Python makes its constructors. Bounds and defaults are text.
std::string rule_catalogue() {
  nlohmann::ordered_json catalogue;
  for (const RuleInfo& rule : isentrope::rule_catalogue()) {
    nlohmann::ordered_json parameters = nlohmann::ordered_json::array();
    for (const RuleParameter& parameter : rule.parameters) {
      auto& told = parameters.emplace_back();
      told = {{"name", python_name(parameter.name)},
              {"type", python_type(parameter.kind)},
              {"low", number_text(parameter.low)},
              {"high", number_text(parameter.high)}};
      if (!std::isnan(parameter.fallback)) told["default"] = default_text(parameter);
    }
    catalogue[std::string(rule.name)] = {{"description", description_of(rule)},
                                         {"parameters", parameters}};
  }
  return catalogue.dump();
}

std::string model_scale(const TorchText& config) {
  const ModelScale scale = scale_of_config(config.view());
  const nlohmann::ordered_json result{
      {"known", scale.known},       {"model_type", scale.model_type},
      {"rule", scale.rule.text()},  {"elsewhere", scale.elsewhere.text()},
      {"layers", scale.layers},     {"dim", scale.dim},
      {"soft_cap", scale.soft_cap}, {"keys", scale.keys},
      {"notes", scale.notes}};
  return result.dump();
}

}  // namespace

void define_rules(const Library& library) {
  library.anywhere<rule_text>("rule_text(str rule) -> str");
  library.anywhere<rule_to_json>("rule_to_json(str rule) -> str");
  library.anywhere<rule_from_json>("rule_from_json(str json) -> str");
  library.anywhere<rule_lambda>("rule_lambda(str rule, int n, int d, int head) -> float");
  library.anywhere<rule_heads>("rule_heads(str rule) -> int");
  library.anywhere<rule_of_heads>("rule_of_heads(str rule, int first, int count) -> str");
  library.anywhere<rule_reads_length>("rule_reads_length(str rule) -> bool");
  library.anywhere<rule_reads_position>("rule_reads_position(str rule) -> bool");
  library.anywhere<rule_table>(
      "rule_table(str rule, int source, int d, int first, int count, bool capped) -> Tensor");
  library.anywhere<rule_catalogue>("rule_catalogue() -> str");
  library.anywhere<model_scale>("model_scale(str config_json) -> str");
}

}  // namespace isentrope::stable
