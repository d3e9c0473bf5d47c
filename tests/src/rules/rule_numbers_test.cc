// Tables of a rule agree with the rule at every length.
#include <gtest/gtest.h>

#include "src/rules/numbers.h"

namespace isentrope {
namespace {

// The rule's three factors; each length source contributes a part.
struct Factors {
  double before = 1, after = 1, on_bias = 1;
};

Factors looked_up(const ScaleRule& rule, const RowLength& row, std::int64_t head, bool capped) {
  constexpr std::int64_t kDim = 64, kFirst = 0, kCount = 300;
  Factors found;
  for (const auto& [source, u] : {std::pair{LengthSource::visible, row.visible},
                                  {LengthSource::position, row.position},
                                  {LengthSource::total, row.total}}) {
    const RuleNumbers numbers = rule_numbers(rule, source, kDim, kFirst, kCount, capped);
    if (numbers.count == 0) continue;
    const std::int64_t plane = numbers.heads * numbers.count;
    const double* at = numbers.factors.data() + head % numbers.heads * numbers.count +
                       std::min(u, numbers.count - 1);
    found.before *= at[0];
    found.after *= at[plane];
    found.on_bias *= at[2 * plane];
  }
  return found;
}

TEST(RuleNumbers, AreThoseOfTheRule) {
  std::vector<ScaleRule> rules = ScaleRule::all();
  for (const char* text :
       {"logn(16,where=post_cap,scale_bias=true)", "ssmax(s=[0.3,-0.2],b=1,length=position)",
        "logn(16,length=200)", "logn(8) * llama_4_scaling(length=total,where=post_cap)",
        "entropy_invariant(base=16,length=visible) * logn(9,length=position) * scaled(2)"}) {
    rules.push_back(ScaleRule::parse(text));
  }
  for (const ScaleRule& rule : rules) {
    for (const RowLength& row : {RowLength{1, 0, 1}, {7, 20, 31}, {290, 250, 299}, {0, 3, 9}}) {
      for (std::int64_t head = 0; head < rule.heads(); ++head) {
        SCOPED_TRACE(rule.text() + " of " + std::to_string(row.visible) + " keys");
        const Factors capped = looked_up(rule, row, head, true);
        EXPECT_DOUBLE_EQ(capped.before * capped.after, rule.lambda(row, 64, head));
        EXPECT_DOUBLE_EQ(looked_up(rule, row, head, false).before, rule.lambda(row, 64, head));
        if (row.visible == 0) continue;  // rows without keys have neither logits nor a bias
        EXPECT_DOUBLE_EQ(capped.after, rule.post_cap(row, 64, head));
        EXPECT_DOUBLE_EQ(capped.on_bias, rule.on_bias(row, 64, head));
      }
    }
  }
}

}  // namespace
}  // namespace isentrope
