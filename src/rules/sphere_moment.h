#pragma once

namespace isentrope {

// For s the cosine between two independent random directions in d dimensions, density proportional
// to (1 - s^2)^((d-3)/2), and g(a) = E[e^(a s)] = Gamma(d/2) (2/a)^(d/2-1) I_(d/2-1)(a):
struct SphereMoment {
  double log;         // ln g(a) >= 0
  double log_scaled;  // ln g(a) - a <= 0, without the cancellation of that difference at large a
  double mean;        // r = (ln g)'(a) = I_(d/2)(a) / I_(d/2-1)(a), in [0, 1): E[s] under e^(a s)
  double gap;         // 1 - r, without cancellation at large a
};

// d in [2, 1e7], a in [0, 1e40]. Each to about 1e-13 relative; log near a = 0 to 1e-16 absolute.
[[nodiscard]] SphereMoment sphere_moment(double d, double a);

}  // namespace isentrope
