// Parses lists of lengths.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace isentrope::cli {

// Parses "64,512,1e6", and ranges: "40:20000:40" counts from 40 to 20000 by 40, "64:4096:x2" by
// factors of 2. Both may be mixed. Lengths are whole numbers in [1, 1e18], at most a million of
// them. Throws Error naming the option otherwise.
[[nodiscard]] std::vector<std::int64_t> parse_lengths(std::string_view text,
                                                      std::string_view option = "lengths");

}  // namespace isentrope::cli
