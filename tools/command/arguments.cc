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

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return {[least, most](const std::string& text) {
            const auto value = number<std::int64_t>(text);
            if (value && *value >= least && *value <= most) return std::string();
            return fmt::format("a whole number from {} to {} is needed; got \"{}\"", least, most,
                               text);
          },
          ""};
}

CLI::Validator whole_number() {
  return {[](const std::string& text) {
            if (number<std::int64_t>(text)) return std::string();
            return fmt::format("a whole number of 64 bits is needed; got \"{}\"", text);
          },
          ""};
}

CLI::Validator positive_number() {
  return {[](const std::string& text) {
            const auto value = number<double>(text);
            if (value && std::isfinite(*value) && *value > 0) return std::string();
            return fmt::format("a positive number is needed; got \"{}\"", text);
          },
          ""};
}

CLI::Validator finite_number() {
  return {[](const std::string& text) {
            const auto value = number<double>(text);
            if (value && std::isfinite(*value)) return std::string();
            return fmt::format("a finite number is needed; got \"{}\"", text);
          },
          ""};
}

}  // namespace isentrope::command
