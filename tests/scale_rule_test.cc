#include "isentrope/scale_rule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "isentrope/error.h"

namespace isentrope {
namespace {

TEST(ScaleRule, EntropyInvariantIsStandardAtItsBase) {
  const RowLength length{512, 511, 512};
  EXPECT_EQ(ScaleRule::entropy_invariant(512).lambda(length, 64), ScaleRule::standard().lambda(length, 64));
}

TEST(ScaleRule, TextRoundTrips) {
  for (const ScaleRule& rule : {ScaleRule::standard(), ScaleRule::constant(0.1), ScaleRule::log_length(),
                                ScaleRule::entropy_invariant(64), ScaleRule::entropy_invariant(512, 16)}) {
    EXPECT_EQ(ScaleRule::parse(rule.text()), rule) << rule.text();
  }
}

TEST(ScaleRule, TextThatIsNoRuleNamesTheRules) {
  try {
    (void)ScaleRule::parse("entropy_invarant(base=512)");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("entropy_invariant(base=512)"), std::string::npos);
  }
}

TEST(ScaleRule, OutOfDomainIsAnError) {
  EXPECT_THROW((void)ScaleRule::entropy_invariant(1), Error);
  EXPECT_THROW((void)ScaleRule::entropy_invariant(NAN), Error);
  EXPECT_THROW((void)ScaleRule::entropy_invariant(512, 0), Error);
  EXPECT_THROW((void)ScaleRule::constant(-1), Error);
}

}  // namespace
}  // namespace isentrope
