// Memory: what the machine has, asked before work that would not fit.
#pragma once

#include <cstdint>
#include <string>

namespace isentrope::command {

// Bytes this process may hope for: those of the machine, or of the container where that has fewer.
[[nodiscard]] std::uint64_t machine_memory();

// "2.5 GiB", for people.
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace isentrope::command
