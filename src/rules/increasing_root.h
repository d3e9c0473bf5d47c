#pragma once

#include <algorithm>
#include <cmath>

namespace isentrope {

// The root of a continuous increasing f on the real line, near `start`, to 2e-15 (1 + |root|). f
// must have a root. Brackets by doubling steps, then the Illinois form of regula falsi, which
// halves the weight of an end that stays: superlinear, and never outside the bracket.
template <class F>
double increasing_root(F f, double start) {
  double low = start, high = start;
  double below = f(start), above = below;
  for (double step = 0.5; below > 0; step *= 2) {
    high = low, above = below;
    low -= step, below = f(low);
  }
  for (double step = 0.5; above < 0; step *= 2) {
    low = high, below = above;
    high += step, above = f(high);
  }
  for (int side = 0; below < 0 && above > 0;) {
    const double tolerance = 1e-15 * (1 + std::abs(low));
    if (high - low <= 2 * tolerance) return low + (high - low) / 2;
    // At least one tolerance away from either end, so that the bracket closes from both sides.
    const double middle = std::clamp(low - below * ((high - low) / (above - below)),
                                     low + tolerance, high - tolerance);
    const double value = f(middle);
    if (value < 0) {
      low = middle, below = value;
      if (side < 0) above /= 2;
      side = -1;
    } else {
      high = middle, above = value;
      if (side > 0) below /= 2;
      side = 1;
    }
  }
  return below == 0 ? low : high;
}

}  // namespace isentrope
