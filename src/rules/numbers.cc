#include "src/rules/numbers.h"

#include <algorithm>

namespace isentrope {
namespace {

// Returns the length that a term reads: visible keys for terms without one, the base included.
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

RuleNumbers rule_numbers(const ScaleRule& rule, LengthSource source, std::int64_t dim,
                         std::int64_t first, std::int64_t count, bool capped) {
  const auto reads = [&](const ScaleRule::Term& term) { return source_of(term) == source; };
  const bool visible = source == LengthSource::visible;
  const bool constant = std::ranges::none_of(rule.terms(), [&](const ScaleRule::Term& term) {
    return reads(term) && term.form.growth != Growth::one &&
           term.form.length.source != LengthSource::fixed;
  });
  if (constant) count = visible ? std::min<std::int64_t>(count, 2) : 0;
  const std::int64_t plane = rule.heads() * count;
  RuleNumbers numbers{rule.heads(), count,
                      std::vector<double>(static_cast<std::size_t>(3 * plane))};
  double* to = numbers.factors.data();
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
  return numbers;
}

}  // namespace isentrope
