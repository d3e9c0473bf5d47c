// A sink takes weight from a row's keys.
#pragma once

#include <cmath>

namespace isentrope {

// The weight that real keys keep beside a sink: 1 / (1 + e^(sink - lse)).
[[nodiscard]] inline double non_sink_weight(double lse, double sink) {
  return 1 / (1 + std::exp(sink - lse));
}

}  // namespace isentrope
