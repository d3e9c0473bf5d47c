// Validators for options, with messages that state the limits.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace isentrope::command {

[[nodiscard]] CLI::Validator whole_number(std::int64_t least, std::int64_t most);

// Accepts a whole number in 64 bits.
[[nodiscard]] CLI::Validator whole_number();

// Accepts a finite number above zero.
[[nodiscard]] CLI::Validator positive_number();

// Accepts a number from 0 to below `limit`.
[[nodiscard]] CLI::Validator number_below(double limit);

[[nodiscard]] CLI::Validator finite_number();

}  // namespace isentrope::command
