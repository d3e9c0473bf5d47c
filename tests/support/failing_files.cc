#include "tests/support/failing_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <sstream>

namespace isentrope {
namespace {

// Never destroyed, because files are closed until the very end of a process.
std::string& folder = *new std::string;
FileFault& fault = *new FileFault;
int record = -1, met = 0;

// Writes to the record by system calls, bypassing the replacements below.
void note(const std::string& line) {
  const std::string text = line + "\n";
  (void)!syscall(SYS_write, record, text.data(), text.size());
}

std::string path_of(int descriptor) {
  if (record < 0) return {};
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = readlink(link.c_str(), path, sizeof path);
  return {path, size < 0 ? 0 : static_cast<std::size_t>(size)};
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char here[PATH_MAX];
  return std::string(getcwd(here, sizeof here) == nullptr ? "" : here) + "/" + path;
}

// Returns whether this call is to fail. Calls for other folders are not counted.
bool fails(const char* call, const std::string& path, const std::string& more = "") {
  if (record < 0 || !path.starts_with(folder)) return false;
  const bool is_it = fault.call == call && (++met == fault.which || fault.which == 0);
  note(call + (" " + path) + more + (is_it ? " fails" : ""));
  if (is_it) errno = fault.error;
  return is_it;
}

template <typename Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Reading is not recorded, except opening folders to flush them.
int opened(const char* path, int flags, mode_t mode) {
  const bool recorded = (flags & O_ACCMODE) != O_RDONLY || (flags & O_DIRECTORY) != 0;
  if (recorded && fails("open", absolute(path))) return -1;
  return original<int(const char*, int, ...)>("open")(path, flags, mode);
}

[[maybe_unused]] const bool from_environment = [] {
  const char* const where = std::getenv("FAILING_FILES_FOLDER");
  if (where == nullptr) return false;
  const char *const to = std::getenv("FAILING_FILES_RECORD"), *const what = std::getenv(
                                                                  "FAILING_FILES_FAULT");
  FileFault asked;
  std::istringstream(what == nullptr ? "" : what) >> asked.call >> asked.which >> asked.error;
  record_files(where, to == nullptr ? "/dev/null" : to, asked);
  return true;
}();

}  // namespace

void record_files(const std::string& where, const std::string& to, const FileFault& what) {
  if (record >= 0) syscall(SYS_close, record);
  folder = where;
  fault = what;
  met = 0;
  record = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, to.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

}  // namespace isentrope

using namespace isentrope;  // NOLINT: replaces functions of the C library

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened(path, flags, mode);
}

// The same call on every 64-bit system.
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

ssize_t write(int file, const void* data, std::size_t size) {
  const auto real = original<ssize_t(int, const void*, std::size_t)>("write");
  if (!fails("write", path_of(file))) return real(file, data, size);
  return fault.error != 0 ? -1 : real(file, data, (size + 1) / 2);
}

int fchmod(int file, mode_t mode) noexcept {
  return fails("chmod", path_of(file)) ? -1 : original<int(int, mode_t)>("fchmod")(file, mode);
}

int fsync(int file) {
  return fails("fsync", path_of(file)) ? -1 : original<int(int)>("fsync")(file);
}

// On Linux the file is closed whatever close() returns.
int close(int file) {
  const bool failed = fails("close", path_of(file));
  const int error = errno, result = original<int(int)>("close")(file);
  if (!failed) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  if (fails("rename", absolute(from), " to " + absolute(to))) return -1;
  return original<int(const char*, const char*)>("rename")(from, to);
}

int unlink(const char* path) noexcept {
  return fails("unlink", absolute(path)) ? -1 : original<int(const char*)>("unlink")(path);
}

int access(const char* path, int mode) noexcept {
  return fails("access", absolute(path)) ? -1
                                         : original<int(const char*, int)>("access")(path, mode);
}
}
