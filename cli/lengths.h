// Lists of lengths as a user types them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace isentrope::cli {

// "64,512,1e6" are those three; "40:20000:40" counts from 40 to 20000 by 40, "64:4096:x2" by
// factors of 2; both may be mixed. Whole numbers in [1, 1e18], at most a million. Error otherwise,
// which names the option.
[[nodiscard]] std::vector<std::int64_t> parse_lengths(std::string_view text,
                                                      std::string_view option = "lengths");

}  // namespace isentrope::cli
