// Domain checks of the theory: the error of every function for an argument out of range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "isentrope/error.h"
#include "src/rules/number_text.h"

namespace isentrope::theory {

// "[sphere_entropy] n must be at least 1 and at most 1e+18; got n = 0.5". NaN is never inside.
inline void require(std::string_view function, std::string_view name, double value, double low,
                    double high) {
  if (value >= low && value <= high) return;
  throw Error("[" + std::string(function) + "] " + std::string(name) + " must be at least " +
              number_text(low) + " and at most " + number_text(high) + "; got " +
              std::string(name) + " = " + number_text(value));
}

inline void require_length(std::string_view function, double n) {
  require(function, "n", n, 1, 1e18);
}

inline void require_dim(std::string_view function, std::int64_t dim) {
  require(function, "dim", static_cast<double>(dim), 2, 1e7);
}

}  // namespace isentrope::theory
