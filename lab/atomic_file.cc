#include "lab/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace isentrope::lab {
namespace {

bool write_all(int file, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file, data.data(), data.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) data.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const std::string_view> parts) {
  const std::filesystem::path part = path.string() + ".part";
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool good = file >= 0;
  for (const std::string_view data : parts) good = good && write_all(file, data);
  good = good && ::fsync(file) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!good || ::rename(part.c_str(), path.c_str()) != 0) {
    throw std::runtime_error(
        fmt::format("cannot write {}: {}", path.string(), std::strerror(good ? errno : error)));
  }
}

}  // namespace isentrope::lab
