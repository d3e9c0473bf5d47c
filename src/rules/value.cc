#include <algorithm>
#include <cmath>
#include <utility>

#include "isentrope/error.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "src/rules/domain.h"

namespace isentrope {
namespace {

constexpr std::size_t kMostTerms = 4;  // keeps a product of factors of at most 1e60 finite

PerHead listed(ScaleRule::Number value) { return value ? PerHead{*value} : PerHead{}; }

}  // namespace

ScaleRule ScaleRule::make(std::string_view name, std::vector<PerHead> arguments) {
  const RuleInfo* rule = find_rule(name);
  if (rule == nullptr || rule->parameters.size() != arguments.size()) {
    reject("a known rule must have as many arguments as it takes", std::string(name));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const RuleParameter& parameter = rule->parameters[i];
    if (arguments[i].empty() && std::isnan(parameter.fallback)) {
      reject(std::string(parameter.name) + " must be given, as in " + signature(*rule), "none");
    }
    if (arguments[i].empty()) arguments[i] = {parameter.fallback};
    check_argument(parameter, arguments[i]);
  }
  ClosedForm form = rule->form(arguments);
  check_heads(form);
  return ScaleRule(std::vector<Term>{{rule->name, std::move(arguments), std::move(form)}});
}

ScaleRule::ScaleRule() : terms_{{"standard", {}, {}}} {}

ScaleRule ScaleRule::constant(double scale) { return make("constant", {{scale}}); }
ScaleRule ScaleRule::query_pre_attn_scalar(Number scalar) {
  return make("query_pre_attn_scalar", {listed(scalar)});
}
ScaleRule ScaleRule::inverse_dim() { return make("inverse_dim", {}); }
ScaleRule ScaleRule::scaled(PerHead gain) { return make("scaled", {std::move(gain)}); }
ScaleRule ScaleRule::cosine(PerHead tau, Number tau_max) {
  return make("cosine", {std::move(tau), listed(tau_max)});
}
ScaleRule ScaleRule::entropy_invariant(Number base, Number n_min) {
  return make("entropy_invariant", {listed(base)}).with_length({.n_min = n_min});
}
ScaleRule ScaleRule::entropy_invariant_kappa(Number kappa) {
  return make("entropy_invariant_kappa", {listed(kappa)});
}
ScaleRule ScaleRule::log_length() { return make("log_length", {}); }
ScaleRule ScaleRule::logn(Number train_len) { return make("logn", {listed(train_len)}); }
ScaleRule ScaleRule::ssmax(PerHead s, PerHead b) {
  return make("ssmax", {std::move(s), std::move(b)});
}
ScaleRule ScaleRule::asentmax(PerHead delta, PerHead beta, PerHead gamma) {
  return make("asentmax", {std::move(delta), std::move(beta), std::move(gamma)});
}
ScaleRule ScaleRule::attn_temperature_tuning(Number floor_scale, Number attn_scale, Number offset) {
  return make("attn_temperature_tuning", {listed(floor_scale), listed(attn_scale)})
      .with_length({.offset = offset});
}
ScaleRule ScaleRule::llama_4_scaling(Number beta, Number train_len) {
  return make("llama_4_scaling", {listed(beta), listed(train_len)});
}
ScaleRule ScaleRule::log_scaling(Number n_floor, Number alpha) {
  return make("log_scaling", {listed(n_floor), listed(alpha)});
}
ScaleRule ScaleRule::dual_chunk(Number train_len, Number alpha) {
  return make("dual_chunk", {listed(train_len), listed(alpha)});
}
ScaleRule ScaleRule::xai_temperature(Number len) { return make("xai_temperature", {listed(len)}); }
ScaleRule ScaleRule::yarn_mscale(Number factor, Number mscale) {
  return make("yarn_mscale", {listed(factor), listed(mscale)});
}
ScaleRule ScaleRule::dynamic_yarn(Number train_len, Number mscale) {
  return make("dynamic_yarn", {listed(train_len), listed(mscale)});
}
ScaleRule ScaleRule::longrope(Number train_len, Number target_len) {
  return make("longrope", {listed(train_len), listed(target_len)});
}
ScaleRule ScaleRule::proportional(Number base_len) {
  return make("proportional", {listed(base_len)});
}
ScaleRule ScaleRule::infoscale(Number train_len) { return make("infoscale", {listed(train_len)}); }
ScaleRule ScaleRule::power(Number exponent, Number gain) {
  return make("power", {listed(exponent), listed(gain)});
}
ScaleRule ScaleRule::grad_max_normal(Number coef) {
  return make("grad_max_normal", {listed(coef)});
}
ScaleRule ScaleRule::grad_max_cosine(Number dim) { return make("grad_max_cosine", {listed(dim)}); }
ScaleRule ScaleRule::table(std::vector<double> n, std::vector<double> factor) {
  return make("table", {std::move(n), std::move(factor)});
}
ScaleRule ScaleRule::per_row(std::vector<double> lambda, Number heads) {
  return make("per_row", {std::move(lambda), listed(heads)});
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

ScaleRule ScaleRule::of_heads(std::int64_t first, std::int64_t count) const {
  const std::int64_t all = heads();
  if (all == 1) return *this;
  if (first < 0 || count < 1 || count > all - first) {
    throw Error("[of_heads] heads must be some of the rule's " + std::to_string(all) + "; got " +
                std::to_string(count) + " from " + std::to_string(first));
  }
  ScaleRule part = *this;
  for (Term& term : part.terms_) {
    const auto term_heads = static_cast<std::size_t>(heads_of(term.form));
    if (term_heads == 1) continue;
    const std::vector<RuleParameter>& parameters = find_rule(term.name)->parameters;
    for (std::size_t at = 0; at < parameters.size(); ++at) {
      PerHead& numbers = term.arguments[at];
      const ParameterKind kind = parameters[at].kind;
      if (kind == ParameterKind::heads) numbers = {static_cast<double>(count)};
      if (kind != ParameterKind::lists && (kind != ParameterKind::per_head || numbers.size() == 1))
        continue;
      const auto width = static_cast<std::ptrdiff_t>(numbers.size() / term_heads);
      numbers = PerHead(numbers.begin() + first * width, numbers.begin() + (first + count) * width);
    }
    ScaleRule rebuilt = make(term.name, term.arguments);
    rebuilt.terms_.front().form.length = term.form.length;
    rebuilt.terms_.front().form.place = term.form.place;
    rebuilt.terms_.front().form.scale_bias = term.form.scale_bias;
    term = std::move(rebuilt.terms_.front());
  }
  return part;
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
    bool complete = rule.name != "closed_form";  // its defaults are another rule
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
