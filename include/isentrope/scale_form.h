// ClosedForm: the one formula behind every published length rule.
//
//   lambda(u, d, h) = base * factor
//   base            = c_h d^p                    the softmax scale without a length
//   factor          = clamp(a_h + b_h G(u, d)^gamma_h, lo, hi)^rho
//   u               = clamp(N + offset, n_min, n_max)
//
// G grows with the length u of the row; N is the length that the policy selects. The policy is part
// of the value, because shipped implementations of the same rule count different lengths.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace isentrope {

// Lengths of a row that a rule may use.
struct RowLength {
  std::int64_t visible = 0;   // keys the row sees: position + 1 when causal
  std::int64_t position = 0;  // of the query, from 0, counted in keys
  std::int64_t total = 0;     // keys of the call
};

// The length N of a row that a rule counts; fixed: a constant.
enum class LengthSource { visible, position, total, fixed };

// How u follows from a row's lengths. The offset is added before the clamp: u >= 1, so no logarithm
// is negative. It need not be an integer: one shipped kernel uses ln(e + n).
struct LengthPolicy {
  LengthSource source = LengthSource::visible;
  double fixed = 0;  // the length itself if source is fixed, otherwise 0
  double n_min = 1;
  double n_max = std::numeric_limits<double>::infinity();
  double offset = 0;

  bool operator==(const LengthPolicy&) const = default;
};

// The growth G(u, d); `unit` is the B, L or t below.
enum class Growth {
  one,         // 1
  log,         // ln u / ln B: exactly 1 at u = B
  log_floor,   // ln(1 + floor(u / L))
  log_ratio,   // ln max(1, u / L)
  sphere_gap,  // (1 - u^(-2/d)) / (1 - L^(-2/d)): exactly 1 at u = L
  power,       // u^t, and u^(2/(d-1)) when t = 0
  table,       // linear in ln u between the nodes, constant beyond them
};

// Whether the factor multiplies the logit before or after a soft-cap. The base always comes before.
enum class ScalePlace { pre_cap, post_cap };

// One number for all heads, or one number per head.
using PerHead = std::vector<double>;

// Nodes of a table, between which the factor is linear in ln n.
struct ScaleNodes {
  std::vector<double> n;       // strictly increasing, >= 1
  std::vector<double> factor;  // as many as n, or as many for each head, head after head

  bool operator==(const ScaleNodes&) const = default;
};

// The symbols of the formula above. The defaults are the standard rule, 1 / sqrt(d).
struct ClosedForm {
  PerHead c = {1};
  double p = -0.5;
  PerHead a = {1};
  PerHead b = {0};
  Growth growth = Growth::one;
  double unit = 1;
  PerHead gamma = {1};
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  double rho = 1;
  ScaleNodes nodes;
  LengthPolicy length;
  ScalePlace place = ScalePlace::pre_cap;
  bool scale_bias = false;  // the factor multiplies an additive position bias too

  bool operator==(const ClosedForm&) const = default;
};

// Returns the number of heads that the form has numbers for; 1 if they are for every head.
[[nodiscard]] std::int64_t heads_of(const ClosedForm& form);

// Returns u of a row.
[[nodiscard]] double length_of(const LengthPolicy& policy, const RowLength& row);

// Returns c_h d^p.
[[nodiscard]] double base_of(const ClosedForm& form, std::int64_t dim, std::int64_t head);

// Returns the factor of a row, clamped to a magnitude of 1e60. Finite for finite members.
[[nodiscard]] double factor_of(const ClosedForm& form, const RowLength& row, std::int64_t dim,
                               std::int64_t head);

}  // namespace isentrope
