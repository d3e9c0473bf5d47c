#include "src/files/writing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>

#include "isentrope/error.h"
#include "src/files/descriptor.h"

namespace isentrope::command {
namespace {

namespace fs = std::filesystem;
using Parts = std::span<const std::string_view>;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw Error("cannot write \"" + path.string() + "\": " + reason);
}

// Repeats an interrupted call, for regular files only: waiting for a pipe should be interruptible.
template <typename Call>
auto again(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Writes all parts. `write` is ::write, or its repeating form.
template <typename Write>
bool write_all(Parts parts, const Write& write) {
  for (std::string_view data : parts) {
    while (!data.empty()) {
      const ssize_t written = write(data);
      if (written == 0) errno = EIO;
      if (written <= 0) return false;
      data.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  return true;
}

// Flushes a folder, because a file's name is on disk only when its folder is. Unreadable folders,
// and file systems that cannot flush folders, count as success.
bool sync_folder(const fs::path& folder) {
  const char* const name = folder.empty() ? "." : folder.c_str();
  const Descriptor opened(again([&] { return ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!opened) return errno == EACCES;
  return again([&] { return ::fsync(opened.number()); }) == 0 || errno == EINVAL;
}

// Target of a path's symbolic links, and the descriptor of this process if it is one. Opened by
// name, a file behind /dev/stdout would be overwritten from its beginning.
struct Destination {
  fs::path path;
  std::optional<int> descriptor;
};

Destination destination_of(fs::path path) {
  constexpr int kMostLinks = 40;  // same limit as the kernel's
  for (int links = 0; links <= kMostLinks; ++links) {
    const std::string folder = path.parent_path().lexically_normal().string();
    if (folder == "/proc/self/fd" || folder == "/dev/fd") {
      const std::string name = path.filename().string();
      int number = -1;
      std::from_chars(name.data(), name.data() + name.size(), number);
      return {path, number};
    }
    std::error_code error;
    const fs::path next = fs::read_symlink(path, error);
    if (error) break;  // not a link
    path = path.parent_path() / next;
  }
  return {path, {}};
}

bool write_durably(Descriptor file, const struct stat* old, Parts parts) {
  const auto write = [&](std::string_view data) {
    return again([&] { return ::write(file.number(), data.data(), data.size()); });
  };
  return file && (old == nullptr || ::fchmod(file.number(), old->st_mode & 07777) == 0) &&
         write_all(parts, write) && again([&] { return ::fsync(file.number()); }) == 0 &&
         file.close();
}

// Flushes data, then name, then folder: a power cut leaves the old or the new file.
bool replace(const fs::path& path, const struct stat* old, Parts parts) {
  const fs::path part = path.string() + ".part";
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const int file = again([&] { return ::open(part.c_str(), kFlags, 0666); });
  if (file < 0) return false;
  if (write_durably(Descriptor(file), old, parts) && ::rename(part.c_str(), path.c_str()) == 0)
    return sync_folder(path.parent_path());
  const int reason = errno;
  ::unlink(part.c_str());
  errno = reason;
  return false;
}

bool write_to(Descriptor file, Parts parts) {
  const auto write = [&](std::string_view data) {
    return ::write(file.number(), data.data(), data.size());
  };
  return file && write_all(parts, write) && file.close();
}

bool write_to_destination(const Destination& to, Parts parts) {
  if (to.descriptor) {
    std::fflush(stdout);  // keeps the order of output
    return write_to(Descriptor(::dup(*to.descriptor)), parts);
  }
  struct stat status;
  const bool exists = ::stat(to.path.c_str(), &status) == 0;
  if (exists ? S_ISREG(status.st_mode) : errno == ENOENT)
    return replace(to.path, exists ? &status : nullptr, parts);
  return exists && write_to(Descriptor(::open(to.path.c_str(), O_WRONLY | O_CLOEXEC)), parts);
}

bool may_be_written(const Destination& to) {
  struct stat status;
  if (to.descriptor) return ::fstat(*to.descriptor, &status) == 0;
  const bool exists = ::stat(to.path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return false;
  }
  if (exists && !S_ISREG(status.st_mode)) return ::access(to.path.c_str(), W_OK) == 0;
  const fs::path folder = to.path.has_parent_path() ? to.path.parent_path() : ".";
  std::error_code error;
  make_folders(folder, error);
  errno = error.value();
  return !error && ::access(folder.c_str(), W_OK) == 0;
}

}  // namespace

void write_file(const fs::path& path, Parts parts) {
  if (!write_to_destination(destination_of(path), parts))
    fail(path, std::generic_category().message(errno));
}

void write_file(const fs::path& path, std::string_view text) {
  write_file(path, std::span(&text, 1));
}

void require_writable(const fs::path& path) {
  if (!may_be_written(destination_of(path)))
    fail(path, errno == EISDIR ? "it is a folder" : std::generic_category().message(errno));
}

void make_folders(const fs::path& folder, std::error_code& error) {
  if (folder.empty() || fs::is_directory(folder, error)) return error.clear();
  make_folders(folder.parent_path(), error);
  if (!error) fs::create_directory(folder, error);
  if (!error && !sync_folder(folder.parent_path())) error = {errno, std::generic_category()};
}

}  // namespace isentrope::command
