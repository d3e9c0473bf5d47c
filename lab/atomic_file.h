// A file that is replaced at once or not at all.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace isentrope::lab {

// The parts, one after the other, become the file's content: a reader, a crash or a full disk
// leaves the old file or the new one. Throws std::runtime_error naming the file when it cannot be
// written.
void replace_file(const std::filesystem::path& path, std::span<const std::string_view> parts);

}  // namespace isentrope::lab
