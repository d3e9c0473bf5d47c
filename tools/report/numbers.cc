#include "tools/report/numbers.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

namespace isentrope::report {

double number_of(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}
namespace {

constexpr const char* kMissing = "–";
constexpr const char* kMinus = "−";

bool rounds_to_zero(double value, int decimals) {
  return std::abs(value) < 0.5 * std::pow(10, -decimals);
}

}  // namespace

std::string decimal(double value, int decimals) {
  if (!std::isfinite(value)) return kMissing;
  const bool negative = value < 0 && !rounds_to_zero(value, decimals);
  return fmt::format("{}{:.{}f}", negative ? kMinus : "", std::abs(value), decimals);
}

std::string signed_decimal(double value, int decimals) {
  const bool positive = value > 0 && std::isfinite(value) && !rounds_to_zero(value, decimals);
  return fmt::format("{}{}", positive ? "+" : "", decimal(value, decimals));
}

std::string interval(double low, double high, int decimals) {
  if (!std::isfinite(low) || !std::isfinite(high)) return kMissing;
  return fmt::format("[{}, {}]", decimal(low, decimals), decimal(high, decimals));
}

std::string compact(double value) {
  if (!std::isfinite(value)) return kMissing;
  std::string digits = fmt::format("{}", std::abs(value));
  if (std::abs(value) < 1e15 && value == std::trunc(value)) {
    digits = fmt::format("{:.0f}", std::abs(value));
    for (std::size_t end = digits.size(), i = end; end > 4 && i > 3;) {
      i -= 3;
      digits.insert(i, 1, ',');
    }
  }
  return fmt::format("{}{}", value < 0 ? kMinus : "", digits);
}

std::string from_to(double from, double to) { return compact(from) + " to " + compact(to); }

}  // namespace isentrope::report
