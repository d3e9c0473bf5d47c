#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "isentrope/rule_catalogue.h"
#include "src/rules/catalogue_forms.h"

namespace isentrope {
namespace {

using enum ParameterKind;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestGain = 1e9;  // together with the exponents' domains, keeps lambda finite
constexpr double kLargestLength = 1e18;  // a double cannot count keys beyond this

constexpr RuleParameter gain(std::string_view name, double fallback) {
  return {name, number, fallback, -kLargestGain, kLargestGain};
}
constexpr RuleParameter head_gain(std::string_view name, double fallback) {
  return {name, per_head, fallback, -kLargestGain, kLargestGain};
}
constexpr RuleParameter train_length(std::string_view name, double fallback) {
  return {name, length, fallback, 1, kLargestLength, true};
}

const RuleParameter kGrowth = {"growth", growth, 0, 0, 5};

// One rule a paragraph: name, parameters, formula, source, use, value at n = 1, which length n
// counts and why, closed form.
// clang-format off

// Constants: the same scale at every length.
std::vector<RuleInfo> rules_without_length() {
  return {
    {"standard", {},
     "1/sqrt(d)",
     "Vaswani et al. 2017",
     "logits of unit variance; the default of most models",
     "1/sqrt(d)", "",
     [](Arguments) { return ClosedForm{}; }},

    {"constant", {gain("scale", 1)},
     "scale",
     "T5 and Gemma 4 (1), Granite attention_multiplier",
     "a model whose configuration gives the softmax scale itself",
     "scale", "",
     [](Arguments x) { return constant_form(x[0], 0); }},

    {"query_pre_attn_scalar", {{"scalar", number, 256, 0, kLargestLength, true}},
     "1/sqrt(scalar)",
     "Gemma 2, Gemma 3",
     "a model whose scale is set by a width other than the head's",
     "1/sqrt(scalar)", "",
     [](Arguments x) { return constant_form({1 / std::sqrt(scalar(x, 0))}, 0); }},

    {"inverse_dim", {},
     "1/d",
     "Inkling, Dragon, maximal-update parametrisation",
     "q and k that are normalised, or that become aligned in training",
     "1/d", "",
     [](Arguments) { return constant_form({1}, -1); }},

    {"scaled", {head_gain("gain", 2.5)},
     "gain_h/sqrt(d)",
     "gain 2.5: Su 2023, gradient maximisation; per head: HeadScale (Wang et al. 2024), DroPE",
     "a constant, sharper scale; 2.5 gives nearly the largest gradient from n = 40 to 20000",
     "gain_h/sqrt(d)", "",
     // A factor, not a base: it may then multiply the scale that a model has.
     [](Arguments x) {
       ClosedForm form;
       form.a = x[0];
       return form;
     }},

    {"cosine", {{"tau", per_head, 10, 0, kLargestGain}, {"tau_max", number, 100, 0, kLargestGain}},
     "min(tau_h, tau_max)",
     "Swin v2, CLIP, x-transformers",
     "unit q and k, where the score is a cosine",
     "min(tau_h, tau_max)", "",
     cosine_form},
  };
}

std::vector<RuleInfo> rules_of_ln_n() {
  return {
    {"entropy_invariant", {train_length("base", 512)},
     "ln n/(ln base sqrt(d))",
     "Su 2021; bert4keras and GAU-alpha with n_min = 16",
     "inputs beyond the trained length: entropy stays constant if the base suits the scores",
     "0 unless n_min > 1", "visible: bert4keras and GAU-alpha sum the row's mask",
     [](Arguments x) { return log_form(scalar(x, 0), LengthSource::visible, -kInfinity); }},

    {"entropy_invariant_kappa", {gain("kappa", 1 / 0.24)},
     "kappa ln n/d",
     "Su 2021, before kappa is set to sqrt(d)/ln 512; the default is its estimate 1/0.24",
     "entropy_invariant with a free constant",
     "0", "visible: n is the number of keys that a row sees",
     [](Arguments x) { ClosedForm form = growing(Growth::log, std::numbers::e, {0}, x[0]);
                       form.p = -1;
                       return form; }},

    {"log_length", {},
     "ln n/sqrt(d)",
     "Chiang and Cholak 2022",
     "formal languages at short lengths; at large n the gradient through the softmax vanishes",
     "0", "visible: the paper's encoders read one text at a time, and each row sees all of it",
     [](Arguments) { return log_form(std::numbers::e, LengthSource::visible, -kInfinity); }},

    {"logn", {train_length("train_len", 8192)},
     "max(1, ln n/ln train_len)/sqrt(d)",
     "Qwen use_logn_attn, ReRoPE (4096); lmdeploy TurboMind with length=position",
     "a trained model beyond its trained length",
     "1/sqrt(d)", "visible: Qwen and ReRoPE use position + 1, the keys that a causal row sees",
     [](Arguments x) { return log_form(scalar(x, 0), LengthSource::visible, 1); }},

    {"ssmax", {head_gain("s", 0.43), head_gain("b", 0)},
     "(s_h ln n + b_h)/sqrt(d)",
     "Scalable-Softmax, Nakanishi 2025; OLMo, Dragon, TabICL",
     "training from scratch with a learned slope per head",
     "b_h/sqrt(d)", "visible: OLMo counts within the packed document, Dragon within the window",
     [](Arguments x) { return growing(Growth::log, std::numbers::e, x[1], x[0]); }},

    {"asentmax", {head_gain("delta", 0), head_gain("beta", 1), {"gamma", per_head, 1, -4, 4}},
     "(delta_h + beta_h ln(n + 1)^gamma_h)/sqrt(d)",
     "ASEntmax 2025, arXiv 2506.16640",
     "learned scale and exponent per head",
     "(delta_h + beta_h ln(2)^gamma_h)/sqrt(d)",
     "visible: position + 2 in its decoders, one more than a row sees",
     asentmax_form},
  };
}

// Scales that begin to grow where training ended.
std::vector<RuleInfo> rules_beyond_training() {
  return {
    {"attn_temperature_tuning", {train_length("floor_scale", 8192), gain("attn_scale", 0.1)},
     "(1 + attn_scale ln(1 + floor((position + 1)/floor_scale)))/sqrt(d)",
     "Llama 4, layers without rotary embedding; offset=0 counts the position from 0",
     "a trained model beyond its trained length",
     "1/sqrt(d)", "position: Llama 4 uses the query's position, counted from 1",
     [](Arguments x) { return floor_form(scalar(x, 0), scalar(x, 1), 1); }},

    {"llama_4_scaling", {gain("beta", 0.1), train_length("train_len", 8192)},
     "(1 + beta ln(1 + floor(position/train_len)))/sqrt(d)",
     "Ministral 3, Mistral 4, Devstral 2: llama_4_scaling_beta",
     "a trained model beyond its trained length; often times yarn_mscale",
     "1/sqrt(d)", "position: Ministral 3 uses the query's position, counted from 0",
     [](Arguments x) { return floor_form(scalar(x, 1), scalar(x, 0), 0); }},

    {"log_scaling", {train_length("n_floor", 128000), gain("alpha", 0.1)},
     "(1 + alpha ln max(1, n/n_floor))/d",
     "Inkling, global layers; multiplies the position bias too",
     "normalised q and k, very long inputs",
     "1/d", "visible: Inkling uses position + 1, on layers whose rows see all earlier keys",
     inkling_form},

    {"dual_chunk", {train_length("train_len", 262144), gain("alpha", 0.1)},
     "(1 + alpha ln max(1, n/train_len))/sqrt(d)",
     "Qwen2.5-1M dual-chunk attention in vLLM, where n is the length of the sequence",
     "a trained model beyond its trained length",
     "1/sqrt(d)", "total: vLLM multiplies the keys by it, the same for all rows",
     [](Arguments x) { return ratio_form(scalar(x, 0), scalar(x, 1), measured(LengthSource::total)); }},

    {"xai_temperature", {train_length("len", 1024)},
     "max(1, ln position/ln len)/sqrt(d)",
     "Grok-2 attn_temperature_len, after the soft-cap of 30",
     "a trained model beyond its trained length",
     "1/sqrt(d)", "position: sglang's kernel uses the query's position, counted from 0",
     grok_form},
  };
}

// Factors that accompany a stretched rotary embedding.
std::vector<RuleInfo> rules_of_stretched_rope() {
  return {
    {"yarn_mscale", {{"factor", number, 4, 0, kLargestLength, true}, gain("mscale", 1)},
     "(1 + 0.1 mscale ln max(1, factor))^2/sqrt(d)",
     "YaRN (Peng et al. 2023): its factor enters q and k, so its square enters the logit; DeepSeek",
     "a model whose rotary embedding was stretched by factor",
     "(1 + 0.1 mscale ln max(1, factor))^2/sqrt(d)", "",
     [](Arguments x) { return yarn_form(1, scalar(x, 1), fixed_at(scalar(x, 0))); }},

    {"dynamic_yarn", {train_length("train_len", 4096), gain("mscale", 1)},
     "(1 + 0.1 mscale ln max(1, n/train_len))^2/sqrt(d)",
     "dynamic YaRN, where n is the number of keys of the call",
     "a model whose rotary embedding is stretched as far as each call needs",
     "1/sqrt(d)", "total: all angles of a call are stretched equally",
     [](Arguments x) { return yarn_form(scalar(x, 0), scalar(x, 1), measured(LengthSource::total)); }},

    {"longrope", {train_length("train_len", 4096), {"target_len", number, 131072, 1, kLargestLength}},
     "max(1, ln target_len/ln train_len)/sqrt(d)",
     "LongRoPE, Phi-3: sqrt(1 + ln(target_len/train_len)/ln train_len) on q and on k",
     "a model whose rotary embedding was stretched to target_len: entropy_invariant at one length",
     "max(1, ln target_len/ln train_len)/sqrt(d)", "",
     longrope_form},
  };
}

// Laws: of entropy, of uniform keys on a sphere, of the largest gradient.
std::vector<RuleInfo> rules_of_laws() {
  return {
    {"proportional", {train_length("base_len", 4096)},
     "sqrt(ln n/ln base_len)/sqrt(d)",
     "Lumina-Next, Lumina 2 in diffusers; Jin et al. 2023",
     "images of sizes not seen in training",
     "0", "total: diffusers uses the tokens of the image, whatever a mask hides",
     [](Arguments x) { return root_form(Growth::log, scalar(x, 0), 1, LengthSource::total); }},

    {"infoscale", {train_length("train_len", 512)},
     "sqrt((1 - n^(-2/d))/(1 - train_len^(-2/d)))/sqrt(d)",
     "InfoScale, arXiv 2501.08570",
     "inputs beyond the trained length; saturates, unlike entropy_invariant",
     "0", "visible: its code sums the row's mask",
     [](Arguments x) { return root_form(Growth::sphere_gap, scalar(x, 0), 1, LengthSource::visible); }},

    {"power", {{"exponent", number, 0, -2, 2}, gain("gain", 1)},
     "gain n^exponent/sqrt(d), exponent 2/(d - 1) when 0 is given",
     "scaling limits, arXiv 2605.08505: the critical scale of uniform keys on a sphere",
     "theory; very small d",
     "gain/sqrt(d)", "visible: n is the number of keys that a row sees",
     [](Arguments x) { return growing(Growth::power, scalar(x, 0), {0}, x[1]); }},

    {"grad_max_normal", {gain("coef", 0.84)},
     "coef sqrt(ln n)/sqrt(d)",
     "Su 2023: largest gradient through the softmax for normal scores; a decoder uses length=L_max/2",
     "training from scratch",
     "0", "visible: a decoder's n is position + 1",
     [](Arguments x) { return root_form(Growth::log, std::numbers::e, scalar(x, 0), LengthSource::visible); }},

    {"grad_max_cosine", {{"dim", number, 128, 2, 65536}},
     "c(dim) ln n, c = 3.4877 at dim = 128",
     "Su 2023: largest gradient through the softmax for cosine scores; c solved for dim",
     "unit q and k, contrastive losses",
     "0", "visible: a decoder's n is position + 1",
     grad_max_cosine_form},
  };
}

// Rules given by numbers alone.
std::vector<RuleInfo> rules_of_any_form() {
  return {
    {"table", {{"n", list, kRequired, 1, kLargestLength},
               {"factor", lists, kRequired, -kLargestGain, kLargestGain}},
     "factor(n)/sqrt(d), linear in ln n between the nodes",
     "laws that need special functions, measured laws",
     "a law without a closed form",
     "the first factor/sqrt(d)", "visible: n is the number of keys that a row sees",
     table_form},

    {"per_row", {{"lambda", lists, kRequired, -kLargestGain, kLargestGain},
                 {"heads", heads, 1, 1, 65536}},
     "lambda[h][position]",
     "data-dependent rules: SSA, QASSMax, adaptive temperature",
     "scales computed elsewhere",
     "lambda[h][0]", "position: there is a number for each row",
     per_row_form},

    {"closed_form", {head_gain("c", 1), {"p", number, -0.5, -2, 2}, head_gain("a", 0), head_gain("b", 1),
                     kGrowth, {"unit", number, 1, -2, kLargestLength}, {"gamma", per_head, 1, -4, 4},
                     {"lo", number, -kInfinity, -kInfinity, kInfinity},
                     {"hi", number, kInfinity, -kInfinity, kInfinity}, {"rho", number, 1, -4, 4}},
     "c_h d^p clamp(a_h + b_h G(n, d)^gamma_h, lo, hi)^rho",
     "the form of all rules; G: one, log, log_floor, log_ratio, sphere_gap, power",
     "a rule that has no name yet",
     "by the formula", "visible: n is the number of keys that a row sees",
     closed_form},
  };
}

// clang-format on

// Lists the rules in the order of the documentation.
std::vector<RuleInfo> make_catalogue() {
  std::vector<RuleInfo> all;
  for (auto* family : {rules_without_length, rules_of_ln_n, rules_beyond_training,
                       rules_of_stretched_rope, rules_of_laws, rules_of_any_form}) {
    for (RuleInfo& rule : family()) all.push_back(std::move(rule));
  }
  return all;
}

}  // namespace

std::span<const RuleInfo> rule_catalogue() {
  static const std::vector<RuleInfo> rules = make_catalogue();
  return rules;
}

const RuleInfo* find_rule(std::string_view name) {
  const auto rules = rule_catalogue();
  const auto found = std::ranges::find(rules, name, &RuleInfo::name);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace isentrope
