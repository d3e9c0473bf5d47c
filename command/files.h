// Whole files in and out, with errors that name them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace isentrope::command {

// All that is in the file. What is no regular file, such as a pipe, may hold 256 MiB: it might
// never end. Throws Error that says why it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

// The parts, one after the other, become the content of the file. A regular file, also one that a
// symbolic link leads to, is replaced at once: a reader, a crash or a full disk leaves the old one
// or the new one, and no trace of the attempt. Anything else (a device, a pipe, /dev/stdout) is
// written as it is. Throws Error that says why it cannot be written.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> parts);
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace isentrope::command
