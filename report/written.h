// The page of whatever JSON file a command wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isentrope::report {

struct Written {
  std::string page;                     // one HTML file
  std::vector<std::string> verdicts{};  // of a study, in words
};

// Throws Error that names the file when its text is not JSON, or is none that a command writes.
[[nodiscard]] Written page_of_file(const std::string& name, std::string_view text);

}  // namespace isentrope::report
