// The error budget that separates right from wrong (docs/numerics.md).
#pragma once

#include <string>

#include "check/run.h"

namespace isentrope::check {

// The largest error over budget of any result: at most 1 when right. NaN counts as infinite unless the
// reference has NaN there too.
struct Ratio {
  double worst = 0;
  std::string where;
};

[[nodiscard]] Ratio forward_error_over_budget(const Data& data, const ForwardResult& result);
[[nodiscard]] Ratio backward_error_over_budget(const Data& data, const reference::GradientInput& gradient,
                                               const BackwardResult& result);

}  // namespace isentrope::check
