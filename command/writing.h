// Whole files out: the one way in which programs and Python's commands write what they keep.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

namespace isentrope::command {

// The parts, one after the other, become the content of the file. A regular file, also one that a
// symbolic link leads to, is replaced at once: a reader, a crash, a power cut or a full disk leaves
// the old one or the new one, and no trace of the attempt. When this returns the new one is on the
// disk. Anything else (a device, a pipe, /dev/stdout) is written as it is. Throws Error that says
// why it cannot be written.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> parts);
void write_file(const std::filesystem::path& path, std::string_view text);

// Before work starts: makes the folder of such a file, and throws Error where it is plain that
// write_file() would.
void require_writable(const std::filesystem::path& path);

// The folder and what leads to it, on the disk when this returns.
void make_folders(const std::filesystem::path& folder, std::error_code& error);

}  // namespace isentrope::command
