// Generated problems through the C interface: the same bits as from C++.

#include "tests/support/calls_in_c.h"
#include "tests/support/same_bits.h"

namespace isentrope::check {
namespace {

TEST(CConformance, GeneratedProblemsHaveTheBitsOfCpp) {
  for (std::int64_t i = 0; i < 400; ++i) {
    const Problem problem = generated_problem(11, i);
    SCOPED_TRACE(text_of(problem));
    expect_same_bits(problem, in_c::passes());
  }
}

}  // namespace
}  // namespace isentrope::check
