// Arrays with any strides: the bits of contiguous ones, and untouched memory between elements.

#include "tests/support/on_target.h"
#include "tests/support/relocated.h"
#include "tests/support/same_bits.h"

namespace isentrope::check {
namespace {

class Strides : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(Strides);

TEST_P(Strides, AnyStridesGiveTheSameBits) {
  for (const char* line :
       {"shape=2x3x30x70x12:20 mask=causal:bottom_right", "shape=2x3x30x72x12:20",
        "shape=2x2x3x300x32",  // few rows, which are not packed
        "dt=bf16 shape=1x2x30x70x64", "dt=bf16 shape=1x2x31x72x64", "dt=bf16 shape=1x2x3x300x64",
        "shape=2x16x30x72x16",  // 2 KB and more between rows
        "shape=1x4:2x2x100x32 cache=16"}) {
    Problem problem = parse_problem(line);
    problem.backward = problem.second_order = problem.cache_group == 0;
    for (const Place place : {Place::scattered, Place::backwards, Place::shifted, Place::apart}) {
      place_of_arrays = place;
      SCOPED_TRACE(std::string(line) + ", place " + std::to_string(static_cast<int>(place)));
      expect_same_bits(problem, relocated_passes());
    }
  }
}

}  // namespace
}  // namespace isentrope::check
