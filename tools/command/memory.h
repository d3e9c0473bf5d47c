// Memory of the machine, checked before work that would not fit.
#pragma once

#include <cstdint>
#include <string>

namespace isentrope::command {

// Returns the bytes available to this process: those of the machine, or of its container if fewer.
[[nodiscard]] std::uint64_t machine_memory();

// Returns a text such as "2.5 GiB".
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace isentrope::command
