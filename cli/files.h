// Whole files in and out, with errors that name them.
#pragma once

#include <filesystem>
#include <string>

namespace isentrope::cli {

[[nodiscard]] std::string read_file(const std::filesystem::path& path);

// Beside the target first, so that a failure leaves an older file as it was.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace isentrope::cli
