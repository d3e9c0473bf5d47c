#include "isentrope/theory/dimension.h"

#include <cmath>
#include <limits>

#include "isentrope/theory/entropy.h"
#include "src/theory/domain.h"

namespace isentrope::theory {
namespace {

constexpr double kLeast = std::numeric_limits<double>::min();

}  // namespace

double jl_dimension(double n, double factor) {
  require_length("jl_dimension", n);
  require("jl_dimension", "factor", factor, kLeast, 1e7);
  return factor * std::log(n);
}

double jl_capacity(double dim, double factor) {
  require("jl_capacity", "dim", dim, kLeast, 1e7);
  require("jl_capacity", "factor", factor, kLeast, 1e7);
  return std::exp(dim / factor);
}

double matched_dimension(double n, double dim, double base) {
  require_length("matched_dimension", n);
  require("matched_dimension", "dim", dim, kLeast, 1e7);
  require("matched_dimension", "base", base, std::nextafter(1, 2), 1e18);
  return dim * (std::log(n) / std::log(base));
}

double matched_factor(double dim, double base) {
  require("matched_factor", "dim", dim, kLeast, 1e7);
  require("matched_factor", "base", base, std::nextafter(1, 2), 1e18);
  return dim / std::log(base);
}

double pair_dimension_factor() { return 2 / laplace_coefficient(); }

}  // namespace isentrope::theory
