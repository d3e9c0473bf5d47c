// Generated problems through the C interface: the same bits as from C++.

#include "tests/support/calls_in_c.h"
#include "tests/support/relocated.h"
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

TEST(CConformance, ArraysOfAnyStridesHaveTheBitsOfCpp) {
  passes_of_arrays = in_c::passes();
  for (const Place place : {Place::scattered, Place::backwards, Place::apart}) {
    place_of_arrays = place;
    expect_same_bits(parse_problem("shape=2x4:2x9x30x8:12 mask=causal:bottom_right bwd=1 second=1"),
                     relocated_passes());
  }
  const Data data(parse_problem("shape=1x2x9x30x8"));
  const float lambda = 0.4f;
  AttentionOptions options = data.options();
  options.lambda = {&lambda, {1, 2, 9}, {0, 0, 0}};
  expect_same_bits(run_forward(data, options, in_c::passes()).output,
                   run_forward(data, options).output);
}

}  // namespace
}  // namespace isentrope::check
