// RowState: maximum, sums and support of a row over some of its keys.
//
//   For the logits z_j of a set of keys that the row sees, with m = max z_j and t_j = z_j - m,
//
//     s0 = sum e^t    s1 = sum e^t t    s1_prime = sum e^t t^2    s2 = sum e^2t
//     s_distance = sum e^t |i - j|, i the row's position and j the key's
//
// States over disjoint sets of keys form a commutative monoid: merge() joins them, and RowState{}
// is the identity. Tiles, threads and devices may therefore split a row anywhere. merge() is
// exactly commutative, and the identity is exact; it is associative up to rounding.
//
// The sums never contain e^(z-m) z with z unshifted, which loses every digit when |m| is large.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace isentrope {

// Sums of a row over some of its keys. They are double, although kernels compute in float, because
// a row of 10^6 keys merges thousands of tiles, while the float sums within a tile are short.
struct RowState {
  double max = -std::numeric_limits<double>::infinity();
  double s0 = 0, s1 = 0, s1_prime = 0, s2 = 0;
  std::int64_t support = 0;  // keys seen; 0 exactly for the identity
  double s_distance = 0;

  [[nodiscard]] bool empty() const { return support == 0; }
  bool operator==(const RowState&) const = default;
};

// Returns the state of one key that the row sees, `distance` keys from the row's position. A logit
// of NaN or +inf makes it NaN; a logit of -inf has no weight.
[[nodiscard]] inline RowState row_state_of(double logit, double distance = 0) {
  if (logit == -std::numeric_limits<double>::infinity()) return {logit, 0, 0, 0, 0, 1};
  const double weight = std::exp(logit - logit);
  return {logit, weight, weight - 1, weight - 1, weight, 1, weight * distance};
}

// Returns the same state measured from m >= a.max. Value sums take the factor e^(a.max - m).
[[nodiscard]] inline RowState rebase(const RowState& a, double m) {
  if (a.max == m) return a;
  // Keys whose logits are all -inf have no weight; -inf times the sum would be NaN.
  // A NaN among them must not be lost, so the test is on the weight.
  if (a.s0 == 0) return {m, 0, 0, 0, 0, a.support};
  const double shift = a.max - m;
  const double f = std::exp(shift);
  const double s1_prime = a.s1_prime + shift * (2 * a.s1 + shift * a.s0);
  return {m,         f * a.s0,        f * (a.s1 + shift * a.s0), f * s1_prime, f * f * a.s2,
          a.support, f * a.s_distance};
}

// Returns the state over the keys of both, which must be disjoint.
[[nodiscard]] inline RowState merge(const RowState& a, const RowState& b) {
  if (b.empty()) return a;
  if (a.empty()) return b;
  const double m = a.max < b.max ? b.max : a.max;
  const RowState x = rebase(a, m), y = rebase(b, m);
  return {m,
          x.s0 + y.s0,
          x.s1 + y.s1,
          x.s1_prime + y.s1_prime,
          x.s2 + y.s2,
          x.support + y.support,
          x.s_distance + y.s_distance};
}

}  // namespace isentrope
