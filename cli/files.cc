#include "cli/files.h"

#include <fstream>
#include <iterator>

#include "isentrope/error.h"

namespace isentrope::cli {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) throw Error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path part = path;
  part += ".part";
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) {
    std::filesystem::remove(part, error);
    throw Error("cannot write " + path.string());
  }
}

}  // namespace isentrope::cli
