#include "tools/check/errors.h"

namespace isentrope::check {

Ratio tangent_error_over_budget(const Problem& p, const reference::Result& forward,
                                const reference::Tangents& want, const TangentResult& got,
                                const Arithmetic& arithmetic) {
  const double weight = weight_error(p, forward, arithmetic);
  // A tangent of a logit is two dot products and a few factors.
  const double sums = gamma(chain(p.keys) + static_cast<double>(2 * p.dim) + 24);
  const double factor = weight * (2 + weight) + sums;
  // Weights times tangents are rounded for products of 16 bits.
  const double rounding = rounding_of(type_of_keys(p), false);
  Worst worst(p.type);
  const auto columns = static_cast<std::size_t>(p.value_dim);
  for (std::size_t i = 0; i < got.output.size(); ++i) {
    const std::size_t row = i / columns;
    const bool overflows = p.type == DType::f16 &&
                           std::isinf(rounded_to(p.type, static_cast<float>(forward.output[i])));
    if (overflows && !std::isfinite(got.output[i])) continue;
    // An output that is denormal in f16 is off by 2^-25, and is multiplied by lse' - sink'.
    const double denormal =
        p.type == DType::f16 ? 0x1p-25 * (2 * want.magnitude.statistics.lse[row] + 5) : 0;
    worst.add_rounded("tangent of output", i, got.output[i], want.output[i],
                      (factor + rounding) * want.magnitude.output[i] + denormal);
  }
  for_each_statistic(
      [&](const Statistic& statistic, const std::vector<float>& values,
          const std::vector<double>& tangents, const std::vector<double>& magnitudes) {
        const std::string name = "tangent of " + std::string(statistic.name);
        for (std::size_t row = 0; row < values.size(); ++row) {
          // Rounding may choose another one of nearly equal largest keys.
          const double doubt =
              statistic.name == "max_probability" ? (1 + factor) * want.nearly_tied[row] : 0;
          worst.add(name.c_str(), row, values[row], tangents[row],
                    factor * magnitudes[row] + doubt);
        }
      },
      got.statistics, want.statistics, want.magnitude.statistics);
  return worst.ratio();
}

}  // namespace isentrope::check
