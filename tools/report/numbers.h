// Numbers as text for readers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace isentrope::report {

// Returns a number of a result; NaN for null, because JSON has no NaN.
[[nodiscard]] double number_of(const nlohmann::json& value);

// Returns vectors of numbers, nested like the type and with NaN for null.
template <typename Numbers>
[[nodiscard]] Numbers numbers_of(const nlohmann::json& value) {
  if constexpr (std::is_same_v<Numbers, double>) {
    return number_of(value);
  } else {
    Numbers numbers;
    for (const nlohmann::json& each : value)
      numbers.push_back(numbers_of<typename Numbers::value_type>(each));
    return numbers;
  }
}

// Returns "43.27", with a true minus sign; an en dash for non-finite numbers.
[[nodiscard]] std::string decimal(double value, int decimals);

// Same with a sign always: "+7.15"; "0.00" has none.
[[nodiscard]] std::string signed_decimal(double value, int decimals);

// Returns "[−0.18, 0.07]"; an en dash if an end is non-finite.
[[nodiscard]] std::string interval(double low, double high, int decimals);

// Returns the shortest text, with thousands apart from five digits on: "1024", "10,000", "0.001".
[[nodiscard]] std::string compact(double value);

// Returns "8192 to 10,240".
[[nodiscard]] std::string from_to(double from, double to);

}  // namespace isentrope::report
