#include "tools/lab/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "isentrope/error.h"

namespace isentrope::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "isentrope.lock";

bool locked(int file, int how) { return flock(file, how | LOCK_NB) == 0; }

[[noreturn]] void refuse_as_used(const fs::path& path) {
  throw Error(fmt::format("[output] {} is in use: another isentrope extrapolate trains there",
                          path.parent_path().string()));
}

// Whether the path still refers to the file, which its last holder may have removed meanwhile.
bool leads_to(const fs::path& path, int file) {
  struct stat at_path, opened;
  return stat(path.c_str(), &at_path) == 0 && fstat(file, &opened) == 0 &&
         at_path.st_ino == opened.st_ino && at_path.st_dev == opened.st_dev;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : path_(folder / kName), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw Error(
        fmt::format("[output] {} cannot be written: {}", path_.string(), std::strerror(errno)));
  }
  if (locked(file_, LOCK_EX) && leads_to(path_, file_)) return;
  ::close(file_);
  refuse_as_used(path_);
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(file_);
}

void FolderLock::require_free(const fs::path& folder) {
  const fs::path path = folder / kName;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const bool is_free = locked(file, LOCK_SH);
  ::close(file);
  if (!is_free) refuse_as_used(path);
}

}  // namespace isentrope::lab
