#include <algorithm>
#include <cmath>

#include "isentrope/scale_form.h"

namespace isentrope {
namespace {

double of_head(const PerHead& values, std::int64_t head) {
  return values.size() == 1 ? values[0] : values[static_cast<std::size_t>(head)];
}

double interpolate(const ScaleNodes& nodes, double u, std::int64_t head) {
  const std::size_t size = nodes.n.size();
  const bool shared = nodes.factor.size() == size;
  const double* factor = nodes.factor.data() + (shared ? 0 : static_cast<std::size_t>(head) * size);
  const auto above = std::ranges::upper_bound(nodes.n, u);
  if (above == nodes.n.begin()) return factor[0];
  if (above == nodes.n.end()) return factor[size - 1];
  const auto i = static_cast<std::size_t>(above - nodes.n.begin());
  const double left = std::log(nodes.n[i - 1]);
  return std::lerp(factor[i - 1], factor[i], (std::log(u) - left) / (std::log(nodes.n[i]) - left));
}

double growth_of(const ClosedForm& form, double u, double dim, std::int64_t head) {
  switch (form.growth) {
    case Growth::one:
      return 1;
    case Growth::log:
      // Returns exactly 1 at u == unit: at its base a rule is the model it extends.
      return std::log(u) / std::log(form.unit);
    case Growth::log_floor:
      return std::log1p(std::floor(u / form.unit));
    case Growth::log_ratio:
      return std::log(std::max(1.0, u / form.unit));
    case Growth::sphere_gap:
      return std::expm1(-2 / dim * std::log(u)) / std::expm1(-2 / dim * std::log(form.unit));
    case Growth::power:
      return std::pow(u, form.unit == 0 ? 2 / (dim - 1) : form.unit);
    case Growth::table:
      return interpolate(form.nodes, u, head);
  }
  return 1;
}

// Returns std::pow for the exponents that occur, several times faster.
double power_of(double value, double exponent) {
  if (exponent == 1) return value;
  if (exponent == 0.5) return std::sqrt(value);
  if (exponent == 2) return value * value;
  return std::pow(value, exponent);
}

}  // namespace

std::int64_t heads_of(const ClosedForm& form) {
  std::size_t heads = std::max({form.c.size(), form.a.size(), form.b.size(), form.gamma.size()});
  if (!form.nodes.n.empty())
    heads = std::max(heads, form.nodes.factor.size() / form.nodes.n.size());
  return static_cast<std::int64_t>(heads);
}

double length_of(const LengthPolicy& policy, const RowLength& row) {
  double n = policy.fixed;
  switch (policy.source) {
    case LengthSource::visible:
      n = static_cast<double>(row.visible);
      break;
    case LengthSource::position:
      n = static_cast<double>(row.position);
      break;
    case LengthSource::total:
      n = static_cast<double>(row.total);
      break;
    case LengthSource::fixed:
      break;
  }
  return std::clamp(n + policy.offset, policy.n_min, policy.n_max);
}

double base_of(const ClosedForm& form, std::int64_t dim, std::int64_t head) {
  const double d = static_cast<double>(dim);
  const double c = of_head(form.c, head);
  // Common powers use sqrt, so that "standard" is 1 / sqrt(d) to the last bit.
  if (form.p == -0.5) return c / std::sqrt(d);
  if (form.p == 0) return c;
  if (form.p == -1) return c / d;
  return c * std::pow(d, form.p);
}

double factor_of(const ClosedForm& form, const RowLength& row, std::int64_t dim,
                 std::int64_t head) {
  constexpr double kLargest = 1e60;
  if (form.growth == Growth::one && form.rho == 1) {
    return std::clamp(of_head(form.a, head) + of_head(form.b, head), form.lo, form.hi);
  }
  const double u = length_of(form.length, row);
  const double growth = std::min(
      kLargest,
      power_of(growth_of(form, u, static_cast<double>(dim), head), of_head(form.gamma, head)));
  const double affine = of_head(form.a, head) + of_head(form.b, head) * growth;
  return std::clamp(power_of(std::clamp(affine, form.lo, form.hi), form.rho), -kLargest, kLargest);
}

}  // namespace isentrope
