// Numbers as a reader expects them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace isentrope::report {

// A number of a result; JSON has no NaN, for which null stands.
[[nodiscard]] double number_of(const nlohmann::json& value);

// "43.27", with a true minus sign; an en dash for what is not finite.
[[nodiscard]] std::string decimal(double value, int decimals);

// The same with a sign always: "+7.15", and "0.00" without one.
[[nodiscard]] std::string signed_decimal(double value, int decimals);

// "[−0.18, 0.07]"; an en dash where an end is not finite.
[[nodiscard]] std::string interval(double low, double high, int decimals);

// The shortest text, thousands set apart from five digits on: "1024", "10,000", "0.001".
[[nodiscard]] std::string compact(double value);

// "8192 to 10,240".
[[nodiscard]] std::string from_to(double from, double to);

}  // namespace isentrope::report
