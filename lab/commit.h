// The commit that the program was built from.
#pragma once

#include <string_view>

namespace isentrope::lab {

// "0123abcd...", with "+changes" where files were not as that commit has them; "unknown" without
// git.
[[nodiscard]] std::string_view program_commit();

}  // namespace isentrope::lab
