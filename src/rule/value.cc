#include <algorithm>
#include <cmath>
#include <utility>

#include "isentrope/error.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "src/rule/number_text.h"

namespace isentrope {
namespace {

constexpr std::size_t kMostTerms = 4;  // keeps a product of factors of at most 1e60 finite

[[noreturn]] void reject(const std::string& required, const std::string& got) {
  throw Error("[scale_rule] " + required + "; got " + got);
}

bool contains(double value, double low, double high, bool open) {
  return (open ? value > low : value >= low) && value <= high;
}

// "scale must be in [0, 1e+09]".
std::string domain_of(std::string_view name, double low, double high, bool open) {
  const std::string from =
      std::string(name) + " must be " + (open ? "above " : "at least ") + number_text(low);
  return std::isinf(high) ? from : from + " and at most " + number_text(high);
}

void require(std::string_view name, double value, double low, double high, bool open = false) {
  if (!contains(value, low, high, open)) {
    reject(domain_of(name, low, high, open), std::string(name) + " = " + number_text(value));
  }
}

void check_argument(const RuleParameter& parameter, const PerHead& values) {
  const bool many =
      parameter.kind == ParameterKind::per_head || parameter.kind == ParameterKind::list;
  if (values.empty() || (!many && values.size() != 1)) {
    reject(std::string(parameter.name) + (many ? " must not be empty" : " must be one number"),
           std::to_string(values.size()) + " numbers");
  }
  for (const double value : values) {
    require(parameter.name, value, parameter.low, parameter.high, parameter.open);
  }
  if (parameter.kind == ParameterKind::growth && values[0] != std::floor(values[0])) {
    reject("growth must be whole", number_text(values[0]));
  }
}

// Per-head arguments of one rule must agree on the number of heads.
void check_heads(const ClosedForm& form) {
  const auto heads = static_cast<std::size_t>(heads_of(form));
  for (const PerHead* values : {&form.c, &form.a, &form.b, &form.gamma}) {
    if (values->size() != 1 && values->size() != heads) {
      reject("per-head arguments must have one length",
             std::to_string(values->size()) + " and " + std::to_string(heads) + " numbers");
    }
  }
}

void check_nodes(std::string_view rule, std::span<const PerHead> arguments) {
  if (rule == "table") {
    const PerHead &n = arguments[0], &factor = arguments[1];
    if (std::ranges::adjacent_find(n, std::greater_equal{}) != n.end()) {
      reject("n must increase strictly", "a table whose n does not");
    }
    if (factor.size() % n.size() != 0) {
      reject("factor must have as many numbers as n, or as many for each head",
             std::to_string(factor.size()) + " for " + std::to_string(n.size()));
    }
  }
  if (rule == "per_row") {
    const double heads = arguments[1][0];
    if (heads != std::floor(heads) || arguments[0].size() % static_cast<std::size_t>(heads) != 0) {
      reject("heads must divide the count of lambda",
             std::to_string(arguments[0].size()) + " lambda and heads = " + number_text(heads));
    }
  }
}

void check_closed_form(const ClosedForm& form) {
  const bool logarithm = form.growth == Growth::log || form.growth == Growth::sphere_gap;
  if (logarithm) require("unit", form.unit, 1, 1e18, true);
  if (form.growth == Growth::log_floor || form.growth == Growth::log_ratio) {
    require("unit", form.unit, 0, 1e18, true);
  }
  if (form.growth == Growth::power) require("unit", form.unit, -2, 2);
  if (!(form.lo <= form.hi)) {
    reject("lo must be at most hi", number_text(form.lo) + " and " + number_text(form.hi));
  }
  if (form.rho != std::floor(form.rho) && !(form.lo >= 0)) {
    reject("lo must be at least 0 when rho is not whole", "lo = " + number_text(form.lo));
  }
}

void check_length(const LengthPolicy& policy) {
  require("n_min", policy.n_min, 1, 1e18);
  require("n_max", policy.n_max, policy.n_min, std::numeric_limits<double>::infinity());
  require("offset", policy.offset, -1e18, 1e18);
  require("length", policy.fixed, 0, 1e18);
}

}  // namespace

ScaleRule ScaleRule::make(std::string_view name, std::vector<PerHead> arguments) {
  const RuleInfo* rule = find_rule(name);
  if (rule == nullptr || rule->parameters.size() != arguments.size()) {
    reject("a rule and as many arguments as it has", std::string(name));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i)
    check_argument(rule->parameters[i], arguments[i]);
  check_nodes(name, arguments);
  ClosedForm form = rule->form(arguments);
  check_heads(form);
  if (name == "closed_form") check_closed_form(form);
  return ScaleRule(std::vector<Term>{{rule->name, std::move(arguments), std::move(form)}});
}

ScaleRule::ScaleRule() : terms_{{"standard", {}, {}}} {}

ScaleRule ScaleRule::constant(double scale) { return make("constant", {{scale}}); }
ScaleRule ScaleRule::query_pre_attn_scalar(double scalar) {
  return make("query_pre_attn_scalar", {{scalar}});
}
ScaleRule ScaleRule::inverse_dim() { return make("inverse_dim", {}); }
ScaleRule ScaleRule::scaled(PerHead gain) { return make("scaled", {std::move(gain)}); }
ScaleRule ScaleRule::cosine(PerHead tau, double tau_max) {
  return make("cosine", {std::move(tau), {tau_max}});
}
ScaleRule ScaleRule::entropy_invariant(double base, double n_min) {
  return make("entropy_invariant", {{base}}).with_length({.n_min = n_min});
}
ScaleRule ScaleRule::entropy_invariant_kappa(double kappa) {
  return make("entropy_invariant_kappa", {{kappa}});
}
ScaleRule ScaleRule::log_length() { return make("log_length", {}); }
ScaleRule ScaleRule::logn(double train_len) { return make("logn", {{train_len}}); }
ScaleRule ScaleRule::ssmax(PerHead s, PerHead b) {
  return make("ssmax", {std::move(s), std::move(b)});
}
ScaleRule ScaleRule::asentmax(PerHead delta, PerHead beta, PerHead gamma) {
  return make("asentmax", {std::move(delta), std::move(beta), std::move(gamma)});
}
ScaleRule ScaleRule::attn_temperature_tuning(double floor_scale, double attn_scale, double offset) {
  return make("attn_temperature_tuning", {{floor_scale}, {attn_scale}})
      .with_length({.source = LengthSource::position, .offset = offset});
}
ScaleRule ScaleRule::llama_4_scaling(double beta, double train_len) {
  return make("llama_4_scaling", {{beta}, {train_len}});
}
ScaleRule ScaleRule::log_scaling(double n_floor, double alpha) {
  return make("log_scaling", {{n_floor}, {alpha}});
}
ScaleRule ScaleRule::dual_chunk(double train_len, double alpha) {
  return make("dual_chunk", {{train_len}, {alpha}});
}
ScaleRule ScaleRule::xai_temperature(double len) { return make("xai_temperature", {{len}}); }
ScaleRule ScaleRule::yarn_mscale(double factor, double mscale) {
  return make("yarn_mscale", {{factor}, {mscale}});
}
ScaleRule ScaleRule::dynamic_yarn(double train_len, double mscale) {
  return make("dynamic_yarn", {{train_len}, {mscale}});
}
ScaleRule ScaleRule::longrope(double train_len, double target_len) {
  return make("longrope", {{train_len}, {target_len}});
}
ScaleRule ScaleRule::proportional(double base_len) { return make("proportional", {{base_len}}); }
ScaleRule ScaleRule::infoscale(double train_len) { return make("infoscale", {{train_len}}); }
ScaleRule ScaleRule::power(double exponent, double gain) {
  return make("power", {{exponent}, {gain}});
}
ScaleRule ScaleRule::grad_max_normal(double coef) { return make("grad_max_normal", {{coef}}); }
ScaleRule ScaleRule::grad_max_cosine(std::int64_t dim) {
  return make("grad_max_cosine", {{static_cast<double>(dim)}});
}
ScaleRule ScaleRule::table(std::vector<double> n, std::vector<double> factor) {
  return make("table", {std::move(n), std::move(factor)});
}
ScaleRule ScaleRule::per_row(std::vector<double> lambda, std::int64_t heads) {
  return make("per_row", {std::move(lambda), {static_cast<double>(heads)}});
}

ScaleRule::Term& ScaleRule::only_term(std::string_view function) {
  if (terms_.size() != 1) {
    throw Error("[" + std::string(function) + "] the rule must not be a product; got " + text());
  }
  return terms_.front();
}

ScaleRule ScaleRule::with_length(const LengthChange& change) const {
  ScaleRule rule = *this;
  LengthPolicy& policy = rule.only_term("with_length").form.length;
  if (change.source || change.fixed) {
    policy.source = change.source.value_or(LengthSource::fixed);
    policy.fixed = change.fixed.value_or(0);
  }
  policy.n_min = change.n_min.value_or(policy.n_min);
  policy.n_max = change.n_max.value_or(policy.n_max);
  policy.offset = change.offset.value_or(policy.offset);
  check_length(policy);
  return rule;
}

ScaleRule ScaleRule::with_place(ScalePlace place) const {
  ScaleRule rule = *this;
  rule.only_term("with_place").form.place = place;
  return rule;
}

ScaleRule ScaleRule::with_scaled_bias(bool scaled) const {
  ScaleRule rule = *this;
  rule.only_term("with_scaled_bias").form.scale_bias = scaled;
  return rule;
}

ScaleRule operator*(const ScaleRule& first, const ScaleRule& second) {
  ScaleRule product = first;
  for (const ScaleRule::Term& term : second.terms_) {
    if (term.form.c != PerHead{1} || term.form.p != -0.5) {
      reject("only the first rule of a product may have another base than 1/sqrt(d)",
             std::string(term.name) + " as a later one");
    }
    if (product.heads() != 1 && heads_of(term.form) != 1 &&
        product.heads() != heads_of(term.form)) {
      reject("the rules of a product must agree on the number of heads",
             std::to_string(product.heads()) + " and " + std::to_string(heads_of(term.form)));
    }
    product.terms_.push_back(term);
  }
  if (product.terms_.size() > kMostTerms) {
    reject("a product must have at most 4 rules", std::to_string(product.terms_.size()));
  }
  return product;
}

void ScaleRule::check(std::int64_t dim, std::int64_t head) const {
  if (dim < 1) throw Error("[lambda] dim must be at least 1; got dim = " + std::to_string(dim));
  const std::int64_t count = heads();
  if (count > 1 && (head < 0 || head >= count)) {
    throw Error("[lambda] head must be one of the rule's " + std::to_string(count) +
                "; got head = " + std::to_string(head));
  }
}

double ScaleRule::pre_cap(const RowLength& length, std::int64_t dim, std::int64_t head) const {
  check(dim, head);
  if (length.visible < 1) return 0;
  double scale = base_of(terms_.front().form, dim, head);
  for (const Term& term : terms_) {
    if (term.form.place == ScalePlace::pre_cap) scale *= factor_of(term.form, length, dim, head);
  }
  return scale;
}

double ScaleRule::post_cap(const RowLength& length, std::int64_t dim, std::int64_t head) const {
  check(dim, head);
  double scale = 1;
  for (const Term& term : terms_) {
    if (term.form.place == ScalePlace::post_cap) scale *= factor_of(term.form, length, dim, head);
  }
  return scale;
}

double ScaleRule::on_bias(const RowLength& length, std::int64_t dim, std::int64_t head) const {
  check(dim, head);
  double scale = 1;
  for (const Term& term : terms_) {
    if (term.form.scale_bias) scale *= factor_of(term.form, length, dim, head);
  }
  return scale;
}

double ScaleRule::lambda(const RowLength& length, std::int64_t dim, std::int64_t head) const {
  check(dim, head);
  if (length.visible < 1) return 0;
  double scale = base_of(terms_.front().form, dim, head);
  for (const Term& term : terms_) scale *= factor_of(term.form, length, dim, head);
  return scale;
}

bool ScaleRule::reads(LengthSource source) const {
  return std::ranges::any_of(terms_, [source](const Term& term) {
    return term.form.growth != Growth::one && term.form.length.source == source;
  });
}

std::int64_t ScaleRule::heads() const {
  std::int64_t heads = 1;
  for (const Term& term : terms_) heads = std::max(heads, heads_of(term.form));
  return heads;
}

std::vector<std::string_view> ScaleRule::names() {
  std::vector<std::string_view> names;
  for (const RuleInfo& rule : rule_catalogue()) names.push_back(rule.name);
  return names;
}

namespace {

std::vector<ScaleRule> all_rules(const double* train_len) {
  std::vector<ScaleRule> rules;
  for (const RuleInfo& rule : rule_catalogue()) {
    std::vector<PerHead> arguments;
    bool complete = rule.name != "closed_form";  // its defaults repeat another rule
    for (const RuleParameter& parameter : rule.parameters) {
      const bool tied = train_len != nullptr && parameter.kind == ParameterKind::length;
      complete = complete && !std::isnan(parameter.fallback);
      arguments.push_back({tied ? *train_len : parameter.fallback});
    }
    if (complete) rules.push_back(ScaleRule::make(rule.name, std::move(arguments)));
  }
  return rules;
}

}  // namespace

std::vector<ScaleRule> ScaleRule::all() { return all_rules(nullptr); }

std::vector<ScaleRule> ScaleRule::all(double train_len) {
  require("train_len", train_len, 1, 1e18, true);
  return all_rules(&train_len);
}

}  // namespace isentrope
