#include "command/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "command/memory.h"
#include "isentrope/error.h"

namespace isentrope::command {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFromPipe = std::size_t{256} << 20;

[[noreturn]] void fail(const char* verb, const fs::path& path, std::string_view reason) {
  throw Error(fmt::format("cannot {} \"{}\": {}", verb, path.string(), reason));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  explicit operator bool() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }
  // Whether all that was written arrived, as far as closing tells.
  [[nodiscard]] bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

bool write_all(int file, std::span<const std::string_view> parts) {
  for (std::string_view data : parts) {
    while (!data.empty()) {
      const ssize_t written = ::write(file, data.data(), data.size());
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) data.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  return true;
}

// Where a symbolic link leads in one step.
fs::path followed(const fs::path& link) { return link.parent_path() / fs::read_symlink(link); }

// What the links of a path's last component lead to, and the descriptor of this process where that
// is one: opened by its name, a file behind /dev/stdout would be written from its beginning.
struct Destination {
  fs::path path;
  std::optional<int> descriptor;
};

Destination destination_of(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  for (int links = 0; links <= kMostLinks; ++links) {
    const std::string folder = path.parent_path().lexically_normal().string();
    if (folder == "/proc/self/fd" || folder == "/dev/fd") {
      const std::string name = path.filename().string();
      int number = -1;
      std::from_chars(name.data(), name.data() + name.size(), number);
      return {path, number};
    }
    std::error_code error;
    if (!fs::is_symlink(path, error)) return {path, {}};
    path = followed(path);
  }
  return {path, {}};
}

bool replace(const fs::path& path, const struct stat* old,
             std::span<const std::string_view> parts) {
  const fs::path part = path.string() + ".part";
  Descriptor file(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) return false;
  const bool good = (old == nullptr || ::fchmod(file.number(), old->st_mode & 07777) == 0) &&
                    write_all(file.number(), parts) && ::fsync(file.number()) == 0 &&
                    file.close() && ::rename(part.c_str(), path.c_str()) == 0;
  if (good) return true;
  const int reason = errno;
  ::unlink(part.c_str());
  errno = reason;
  return false;
}

bool write_to(Descriptor file, std::span<const std::string_view> parts) {
  return file && write_all(file.number(), parts) && file.close();
}

bool write_to_destination(const Destination& to, std::span<const std::string_view> parts) {
  if (to.descriptor) {
    std::fflush(stdout);  // what was printed before comes before
    return write_to(Descriptor(::dup(*to.descriptor)), parts);
  }
  struct stat status;
  const bool exists = ::stat(to.path.c_str(), &status) == 0;
  if (exists ? S_ISREG(status.st_mode) : errno == ENOENT)
    return replace(to.path, exists ? &status : nullptr, parts);
  return exists && write_to(Descriptor(::open(to.path.c_str(), O_WRONLY | O_CLOEXEC)), parts);
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!file || ::fstat(file.number(), &status) != 0) fail("read", path, std::strerror(errno));
  const bool regular = S_ISREG(status.st_mode);
  const auto size = regular ? static_cast<std::uint64_t>(status.st_size) : 0;
  if (size > machine_memory()) {
    fail("read", path,
         fmt::format("it has {}, more than this machine's memory",
                     bytes_text(static_cast<double>(size))));
  }
  std::string content;
  content.reserve(size);
  for (std::string chunk(std::size_t{1} << 16, '\0');;) {
    const ssize_t count = ::read(file.number(), chunk.data(), chunk.size());
    if (count == 0) return content;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path, std::strerror(errno));
    content.append(chunk, 0, static_cast<std::size_t>(count));
    if (!regular && content.size() > kMostFromPipe) {
      fail("read", path, "what is no regular file may hold 256 MiB, and it holds more");
    }
  }
}

void write_file(const fs::path& path, std::span<const std::string_view> parts) {
  const Destination to = destination_of(path);
  if (!write_to_destination(to, parts)) fail("write", path, std::strerror(errno));
}

void write_file(const fs::path& path, std::string_view text) {
  write_file(path, std::span(&text, 1));
}

}  // namespace isentrope::command
