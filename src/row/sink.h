// Weight that a sink takes from a row's keys.
#pragma once

#include <cmath>

namespace isentrope {

// Returns the weight left to the keys: 1 / (1 + e^(sink - lse)).
[[nodiscard]] inline double non_sink_weight(double lse, double sink) {
  return 1 / (1 + std::exp(sink - lse));
}

}  // namespace isentrope
