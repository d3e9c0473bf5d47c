// Whole files in, with errors that name them.
#pragma once

#include <filesystem>
#include <string>

namespace isentrope::command {

// All that is in the file. What is no regular file, such as a pipe, may hold 256 MiB: it might
// never end. Throws Error that says why it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

}  // namespace isentrope::command
