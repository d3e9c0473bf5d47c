// Commit that the program was built from.
#pragma once

#include <string_view>

namespace isentrope::lab {

// Returns "0123abcd...", followed by "+changes" if files differed from that commit; "unknown"
// without git.
[[nodiscard]] std::string_view program_commit();

}  // namespace isentrope::lab
