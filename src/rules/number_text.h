// Numbers and enumerators as text, the same everywhere a rule is printed or read.
#pragma once

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "isentrope/scale_form.h"

namespace isentrope {

// Returns the shortest text that reads back as the same double: "512", "0.1", "1e-30", "inf".
inline std::string number_text(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

inline std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

inline constexpr std::array<std::string_view, 7> kGrowthNames = {
    "one", "log", "log_floor", "log_ratio", "sphere_gap", "power", "table"};

inline std::string growth_name(Growth growth) {
  return std::string(kGrowthNames[static_cast<std::size_t>(growth)]);
}

}  // namespace isentrope
