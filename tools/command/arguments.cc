#include "tools/command/arguments.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace isentrope::command {
namespace {

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// Accepts text that is a number of which `holds` is true; `needed` says which.
template <typename Number, typename Holds>
CLI::Validator checked(const Holds& holds, const std::string& needed) {
  return {[holds, needed](const std::string& text) {
            const auto value = number<Number>(text);
            if (value && holds(*value)) return std::string();
            return fmt::format("{} is needed; got \"{}\"", needed, text);
          },
          ""};
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return checked<std::int64_t>(
      [least, most](std::int64_t value) { return value >= least && value <= most; },
      fmt::format("a whole number from {} to {}", least, most));
}

CLI::Validator whole_number() {
  return checked<std::int64_t>([](std::int64_t) { return true; }, "a whole number of 64 bits");
}

CLI::Validator positive_number() {
  return checked<double>([](double value) { return std::isfinite(value) && value > 0; },
                         "a positive number");
}

CLI::Validator number_below(double limit) {
  return checked<double>([limit](double value) { return value >= 0 && value < limit; },
                         fmt::format("a number from 0 to below {}", limit));
}

CLI::Validator finite_number() {
  return checked<double>([](double value) { return std::isfinite(value); }, "a finite number");
}

}  // namespace isentrope::command
