// Reads whole files, with errors that name them.
#pragma once

#include <filesystem>
#include <string>

namespace isentrope::command {

// Returns the content of a file. Anything but a regular file, such as a pipe, may hold at most 256
// MiB, because it might never end. Throws Error with the reason if it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

}  // namespace isentrope::command
