// ScaleRule: the softmax scale lambda of a row, as a function of how many keys the row sees.
//
//   logits z_j = lambda(n, d) q.k_j
//
// A rule is a plain value: it compares, prints and round-trips through text. It is resolved once
// per call into one lambda per row and head; kernels see numbers, never rules. Every rule is one
// closed form (scale_form.h), or a product of them if a model applies two.
//
// Each constructor below returns the rule of the stated formula. It throws Error if an argument is
// outside its domain, as NaN always is. A PerHead argument is one number, or one per head. An
// omitted argument has the default of the catalogue. d is the head dimension. For sources, defaults
// and advice see docs/scale-rules.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_form.h"

namespace isentrope {

class ScaleRule {
 public:
  // A rule of the catalogue with its arguments and closed form.
  struct Term {
    std::string_view name;
    std::vector<PerHead> arguments;  // in the order of the catalogue
    ClosedForm form;

    bool operator==(const Term&) const = default;
  };

  using Number = std::optional<double>;

  ScaleRule();  // standard

  // --- scales that do not depend on n
  // 1 / sqrt(d): unit variance of q.k for independent components (Vaswani et al. 2017).
  static ScaleRule standard() { return {}; }
  // scale, whatever n and d (T5, Granite). |scale| <= 1e9.
  static ScaleRule constant(double scale);
  // scalar^(-1/2) (Gemma 2, Gemma 3). scalar in (0, 1e18].
  static ScaleRule query_pre_attn_scalar(Number scalar = {});
  // 1 / d, for normalised q and k (Inkling; maximal-update parametrisation).
  static ScaleRule inverse_dim();
  // gain_h / sqrt(d) (HeadScale, DroPE). |gain| <= 1e9.
  static ScaleRule scaled(PerHead gain = {});
  // 2.5 / sqrt(d): the constant near the gradient-maximising scale of normal scores (Su 2023).
  static ScaleRule grad_max_constant() { return scaled({2.5}); }
  // min(tau_h, tau_max), for unit q and k (Swin v2, CLIP). tau in [0, 1e9].
  static ScaleRule cosine(PerHead tau = {}, Number tau_max = {});

  // --- logarithms of the length
  // ln n / (ln base sqrt(d)): constant entropy as n grows (Su 2021). base > 1. 0 at n = 1, where
  // any scale gives the same row; n below n_min >= 1 counts as n_min (16 in bert4keras).
  static ScaleRule entropy_invariant(Number base = {}, Number n_min = {});
  // kappa ln n / d (Su 2021, before kappa was eliminated). The default is Su's estimate.
  static ScaleRule entropy_invariant_kappa(Number kappa = {});
  // ln n / sqrt(d) (Chiang and Cholak 2022).
  static ScaleRule log_length();
  // max(1, ln n / ln train_len) / sqrt(d) (Qwen, ReRoPE). train_len > 1.
  static ScaleRule logn(Number train_len = {});
  // (s_h ln n + b_h) / sqrt(d) (Scalable-Softmax, Nakanishi 2025).
  static ScaleRule ssmax(PerHead s = {}, PerHead b = {});
  // (delta_h + beta_h (ln(n + 1))^gamma_h) / sqrt(d) (ASEntmax 2025). gamma in [-4, 4].
  static ScaleRule asentmax(PerHead delta = {}, PerHead beta = {}, PerHead gamma = {});

  // --- corrections beyond the training length
  // (1 + attn_scale ln(1 + floor((position + offset) / floor_scale))) / sqrt(d) (Llama 4).
  static ScaleRule attn_temperature_tuning(Number floor_scale = {}, Number attn_scale = {},
                                           Number offset = {});
  // (1 + beta ln(1 + floor(position / train_len))) / sqrt(d), position counted from 0 (Ministral 3,
  // Mistral 4).
  static ScaleRule llama_4_scaling(Number beta = {}, Number train_len = {});
  // (1 + alpha ln max(1, n / n_floor)) / d; the factor multiplies the bias too (Inkling).
  static ScaleRule log_scaling(Number n_floor = {}, Number alpha = {});
  // (1 + alpha ln max(1, n / train_len)) / sqrt(d), n the keys of the call (Qwen2.5-1M).
  static ScaleRule dual_chunk(Number train_len = {}, Number alpha = {});
  // max(1, ln position / ln len) / sqrt(d), after the soft-cap (Grok-2).
  static ScaleRule xai_temperature(Number len = {});
  // (1 + 0.1 mscale ln max(1, factor))^2 / sqrt(d): YaRN's factor enters q and k, so its square
  // enters the logit. factor > 0.
  static ScaleRule yarn_mscale(Number factor = {}, Number mscale = {});
  // The formula of yarn_mscale with factor = n / train_len, n the keys of the call (dynamic YaRN).
  static ScaleRule dynamic_yarn(Number train_len = {}, Number mscale = {});
  // max(1, ln target_len / ln train_len) / sqrt(d): the square of the factor on q and k (LongRoPE,
  // Phi-3).
  static ScaleRule longrope(Number train_len = {}, Number target_len = {});

  // --- other growths
  // sqrt(ln n / ln base_len) / sqrt(d), n the keys of the call (Lumina). base_len > 1.
  static ScaleRule proportional(Number base_len = {});
  // sqrt((1 - n^(-2/d)) / (1 - train_len^(-2/d))) / sqrt(d) (InfoScale 2025). train_len > 1.
  static ScaleRule infoscale(Number train_len = {});
  // gain n^exponent / sqrt(d); exponent 0 stands for 2 / (d - 1), the critical exponent of keys on
  // a sphere (arXiv 2605.08505). exponent in [-2, 2].
  static ScaleRule power(Number exponent = {}, Number gain = {});
  // coef sqrt(ln n) / sqrt(d): largest gradient for normal scores (Su 2023).
  static ScaleRule grad_max_normal(Number coef = {});
  // c(dim) ln n, for unit q and k: largest gradient for cosine scores (Su 2023). c is solved for
  // dim in [2, 65536] by least squares over n = 40, 80, ... 20000: 3.4877 at 128. Milliseconds.
  static ScaleRule grad_max_cosine(Number dim = {});

  // --- tables
  // factor(n) / sqrt(d), linear in ln n between the nodes and constant beyond them. n strictly
  // increasing, >= 1; factor as long as n, or as n for each head in turn.
  static ScaleRule table(std::vector<double> n, std::vector<double> factor);
  // lambda itself, one for each query position from 0 and, if heads > 1, for each head in turn.
  // Positions beyond the last have the lambda of the last.
  static ScaleRule per_row(std::vector<double> lambda, Number heads = {});

  // Changes of the length that a rule counts. Members left out keep their values; a fixed length is
  // its own source. n_min >= 1, n_max >= n_min, |offset| <= 1e18, fixed in [0, 1e18].
  struct LengthChange {
    std::optional<LengthSource> source{};
    std::optional<double> fixed{}, n_min{}, n_max{}, offset{};
  };
  // Returns this rule with another length, place or effect on the bias. Throws Error if it is a
  // product or a value is outside its domain.
  [[nodiscard]] ScaleRule with_length(const LengthChange& change) const;
  [[nodiscard]] ScaleRule with_place(ScalePlace place) const;
  [[nodiscard]] ScaleRule with_scaled_bias(bool scaled) const;

  // Returns the product of two rules that one model applies together: the base of the first, the
  // factors of both. Throws Error if the second has another base than 1 / sqrt(d), because a base
  // cannot count twice. Throws Error if numbers of heads differ, or if there are more than 4 terms.
  friend ScaleRule operator*(const ScaleRule& first, const ScaleRule& second);

  // Returns the rule as text, such as "entropy_invariant(base=512)"; parse(text()) == *this.
  [[nodiscard]] std::string text() const;
  // Parses name(argument=value, ...). Arguments may be in any order; those with a default may be
  // omitted; without names they are in the order of the catalogue; [x, y] is a number per head.
  // Every rule also takes length=visible|position|total|N, n_min, n_max, offset,
  // where=pre_cap|post_cap and scale_bias=true|false. * multiplies rules. Throws Error that lists
  // the rules, or the arguments of the rule, and the one that was probably meant.
  [[nodiscard]] static ScaleRule parse(std::string_view text);
  // Returns a rule of the catalogue from one list of numbers per parameter; an empty list is the
  // default. Throws Error if the name, the count of lists or a number is invalid.
  [[nodiscard]] static ScaleRule make(std::string_view name, std::vector<PerHead> arguments);

  // Returns the softmax scale of a row, pre_cap times post_cap. Always finite; >= 0 unless an
  // argument is negative; 0 for a row without keys. Throws Error unless dim >= 1, and head is below
  // heads() or heads() is 1.
  [[nodiscard]] double lambda(const RowLength& length, std::int64_t dim,
                              std::int64_t head = 0) const;
  // Return the factors of q.k before a soft-cap, of the logit after it, and of an additive bias.
  [[nodiscard]] double pre_cap(const RowLength& length, std::int64_t dim,
                               std::int64_t head = 0) const;
  [[nodiscard]] double post_cap(const RowLength& length, std::int64_t dim,
                                std::int64_t head = 0) const;
  [[nodiscard]] double on_bias(const RowLength& length, std::int64_t dim,
                               std::int64_t head = 0) const;

  // Returns whether the scale may depend on that length of a row. A rule that reads none has one
  // scale for every row with a key.
  [[nodiscard]] bool reads(LengthSource source) const;
  // Returns the number of heads that the rule has numbers for; 1 if all heads have the same scale.
  [[nodiscard]] std::int64_t heads() const;
  // Returns the rule for `count` heads from `first` on, with the numbers of those only. Returns
  // this rule itself if all heads have one scale. Throws Error if it has no such heads.
  [[nodiscard]] ScaleRule of_heads(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] std::span<const Term> terms() const { return terms_; }

  // Returns the names that parse() knows.
  [[nodiscard]] static std::vector<std::string_view> names();
  // Returns all rules whose arguments all have defaults.
  [[nodiscard]] static std::vector<ScaleRule> all();
  // Returns the same with train_len, in (1, 1e18], as the trained length of every rule that has
  // one. At train_len keys entropy_invariant, logn, infoscale and others then equal the standard
  // rule.
  [[nodiscard]] static std::vector<ScaleRule> all(double train_len);

  bool operator==(const ScaleRule&) const = default;

 private:
  explicit ScaleRule(std::vector<Term> terms) : terms_(std::move(terms)) {}
  void check(std::int64_t dim, std::int64_t head) const;
  Term& only_term(std::string_view function);

  std::vector<Term> terms_;  // at least one
};

}  // namespace isentrope
