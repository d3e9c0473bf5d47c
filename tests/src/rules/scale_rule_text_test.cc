// Text form of rules: round trips, lenient parsing, and helpful errors.
#include <gtest/gtest.h>

#include <string>

#include "isentrope/error.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "tests/support/message_of.h"
#include "tests/support/rules_of_every_form.h"
#include "tests/support/words.h"

namespace isentrope {
namespace {

std::string message_of(std::string_view text) {
  return isentrope::message_of([&] { return ScaleRule::parse(text); });
}

TEST(ScaleRuleText, RoundTrips) {
  for (const ScaleRule& rule : rules_of_every_form())
    EXPECT_EQ(ScaleRule::parse(rule.text()), rule) << rule.text();
}

TEST(ScaleRuleText, IsCanonical) {
  EXPECT_EQ(ScaleRule::entropy_invariant(512).text(), "entropy_invariant(base=512)");
  EXPECT_EQ(ScaleRule::standard().text(), "standard");
  EXPECT_EQ(ScaleRule::ssmax({0.5, 1}).text(), "ssmax(s=[0.5,1],b=0)");
  EXPECT_EQ((ScaleRule::llama_4_scaling() * ScaleRule::yarn_mscale(16)).text(),
            "llama_4_scaling(beta=0.1,train_len=8192) * yarn_mscale(factor=16,mscale=1)");
}

TEST(ScaleRuleText, ReadsDefaultsSpacesOrderAndPositions) {
  EXPECT_EQ(ScaleRule::parse("entropy_invariant"), ScaleRule::entropy_invariant());
  EXPECT_EQ(ScaleRule::parse(" entropy_invariant ( ) "), ScaleRule::entropy_invariant());
  EXPECT_EQ(ScaleRule::parse("entropy_invariant( n_min = 16 , base = 64 )"),
            ScaleRule::entropy_invariant(64, 16));
  EXPECT_EQ(ScaleRule::parse("logn(4096)"), ScaleRule::logn(4096));
  EXPECT_EQ(ScaleRule::parse("logn(4096,where=pre_cap,scale_bias=false)"), ScaleRule::logn(4096));
  EXPECT_EQ(ScaleRule::parse("ssmax([0.5, 1], 2)"), ScaleRule::ssmax({0.5, 1}, {2}));
  EXPECT_EQ(ScaleRule::parse("attn_temperature_tuning(floor_scale=8192,attn_scale=0.1,offset=1)"),
            ScaleRule::attn_temperature_tuning());
  EXPECT_EQ(ScaleRule::parse("logn(n_min=500,n_max=400000)"),
            ScaleRule::logn().with_length({.n_min = 500, .n_max = 400000}));
}

TEST(ScaleRuleText, UnknownNamesSayWhichRulesThereAreAndWhichWasMeant) {
  const std::string message = message_of("entropy_invarant(base=512)");
  expect_words(message, {"entropy_invariant(base=512)", "(did you mean entropy_invariant?)"});
  for (const std::string_view name : ScaleRule::names()) expect_words(message, {std::string(name)});
  expect_words(message_of("log_n"), {"did you mean logn?"});
  expect_words(message_of("yarn"), {"a rule must be one of"});
  EXPECT_FALSE(has(message_of("qqqqqqqq"), "did you mean"));
}

TEST(ScaleRuleText, UnknownArgumentsSayWhichThereAreAndWhichWasMeant) {
  expect_words(
      message_of("entropy_invariant(bas=512)"),
      {"an argument of entropy_invariant must be one of base, length", "did you mean base?"});
}

TEST(ScaleRuleText, RejectsWhatIsNoRule) {
  for (const char* text : {"",
                           "(",
                           ")",
                           "*",
                           "standard *",
                           "standard(",
                           "standard)",
                           "standard(1)",
                           "logn(x)",
                           "logn(1,2)",
                           "logn(train_len=)",
                           "logn(train_len=[1,2])",
                           "logn(train_len=nan)",
                           "logn(train_len=inf)",
                           "ssmax(s=[])",
                           "ssmax(s=[1,])",
                           "ssmax(s=[1)",
                           "logn(train_len=9,train_len=9)",
                           "table",
                           "table(n=1)",
                           "table(n=[2,2],factor=[1,1])",
                           "logn(length=fixed)",
                           "logn(length=-1)",
                           "logn(length=hats)",
                           "logn(6 4)",
                           "logn(n_min=0)",
                           "logn(n_min=5,n_max=4)",
                           "logn(where=here)",
                           "logn(scale_bias=1)",
                           "per_row([1,2,3],2)",
                           "per_row(1,1.5)",
                           "closed_form(growth=table)",
                           "closed_form(growth=hats)",
                           "closed_form(growth=0.5)",
                           "closed_form(growth=power,unit=9)",
                           "closed_form(growth=log_floor,unit=0)",
                           "closed_form(growth=log_ratio,unit=-1)",
                           "closed_form(growth=log)",
                           "closed_form(lo=1,hi=0)",
                           "closed_form(rho=0.5)",
                           "logn,",
                           "logn()x",
                           "standard * inverse_dim"}) {
    EXPECT_THROW((void)ScaleRule::parse(text), Error) << text;
  }
  EXPECT_FALSE(has(message_of("lo\ngn("), "\n")) << "errors are one line";
  expect_words(message_of(std::string(500, 'x')), {std::string(120, 'x') + "...\""});
  EXPECT_EQ(message_of(std::string(std::size_t{1} << 21, 'x')),
            "[scale_rule] a rule must be at most 1048576 characters long; got 2097152");
}

TEST(ScaleRuleText, SignaturesParse) {
  for (const RuleInfo& rule : rule_catalogue()) {
    const std::string text = signature(rule);
    if (text.find("...") == std::string::npos && rule.name != "closed_form") {
      EXPECT_EQ(ScaleRule::parse(text).text(), text);
    }
  }
}

}  // namespace
}  // namespace isentrope
