// Page for any JSON file that a command wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isentrope::report {

struct DocumentPage {
  std::string page;                     // HTML
  std::vector<std::string> verdicts{};  // of a study, as sentences
};

// Throws Error naming the file if its text is not JSON or not of a known kind.
[[nodiscard]] DocumentPage page_of_file(const std::string& name, std::string_view text);

}  // namespace isentrope::report
