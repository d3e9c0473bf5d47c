// Writes whole files: used by all programs and by Python's commands.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

namespace isentrope::command {

// Writes the parts, one after the other, as the content of the file. A regular file, also behind a
// symbolic link, is replaced atomically: a reader, a crash, a power cut or a full disk leaves the
// old or the new one and no temporary file. On return it is on disk. Anything else (a device, a
// pipe, /dev/stdout) is written directly. Throws Error with the reason if it cannot be written.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> parts);
void write_file(const std::filesystem::path& path, std::string_view text);

// Creates the folder of such a file, and throws Error if write_file() would clearly fail. Called
// before long work.
void require_writable(const std::filesystem::path& path);

// Creates the folder and its parents, flushed to disk.
void make_folders(const std::filesystem::path& folder, std::error_code& error);

}  // namespace isentrope::command
