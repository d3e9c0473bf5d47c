// Text that is safe to put on a page, whatever its strings hold, and numbers as text for readers.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tools/analysis/rows.h"

namespace isentrope::report {

// Escapes HTML's five special characters. Safe in elements and quoted attributes.
[[nodiscard]] std::string escape(std::string_view text);

// Prose with a little markup. Only these functions add markup; strings are escaped.
//
//   Text("Entropy is at most ").symbol("ln n").plain(", see ").link("Su 2021", url);
class Text {
 public:
  Text() = default;
  Text(const std::convertible_to<std::string_view> auto& plain) : html_(escape(plain)) {}

  // Trusted markup of a template, inserted as it is.
  [[nodiscard]] static Text markup(std::string html);

  Text& plain(std::string_view text);
  Text& strong(std::string_view text);
  Text& symbol(std::string_view text);  // formula or variable
  // A name in code, which may break after underscores and before brackets to fit narrow columns.
  Text& code(std::string_view text);
  Text& small(std::string_view text);  // on its own line, such as a spread below a mean
  // A link to follow; it loads nothing. Throws Error unless the URL is http, https or a #fragment.
  Text& link(std::string_view label, std::string_view url);

  [[nodiscard]] const std::string& html() const { return html_; }

 private:
  Text& element(std::string_view name, std::string_view text);

  std::string html_;
};

// Returns vectors of numbers, nested like the type and with NaN for null.
template <typename Numbers>
[[nodiscard]] Numbers numbers_of(const nlohmann::json& value) {
  if constexpr (std::is_same_v<Numbers, double>) {
    return analysis::number_in(value);
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
