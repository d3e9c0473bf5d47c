// What options take, with refusals that say the limits.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace isentrope::command {

[[nodiscard]] CLI::Validator whole_number(std::int64_t least, std::int64_t most);

// Whatever the program says of its size, but one that 64 bits hold.
[[nodiscard]] CLI::Validator whole_number();

// Above zero, and finite.
[[nodiscard]] CLI::Validator positive_number();

[[nodiscard]] CLI::Validator finite_number();

}  // namespace isentrope::command
