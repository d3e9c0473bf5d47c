#include "tools/command/reading.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "isentrope/error.h"
#include "src/files/descriptor.h"
#include "tools/command/memory.h"

namespace isentrope::command {
namespace {

constexpr std::size_t kMostFromPipe = std::size_t{256} << 20;

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view reason) {
  throw Error(fmt::format("cannot read \"{}\": {}", path.string(), reason));
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!file || ::fstat(file.number(), &status) != 0) fail(path, std::strerror(errno));
  const bool regular = S_ISREG(status.st_mode);
  const auto size = regular ? static_cast<std::uint64_t>(status.st_size) : 0;
  if (size > machine_memory()) {
    fail(path, fmt::format("it has {}, more than this machine's memory",
                           bytes_text(static_cast<double>(size))));
  }
  std::string content;
  content.reserve(size);
  for (std::string chunk(std::size_t{1} << 16, '\0');;) {
    const ssize_t count = ::read(file.number(), chunk.data(), chunk.size());
    if (count == 0) return content;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, std::strerror(errno));
    content.append(chunk, 0, static_cast<std::size_t>(count));
    if (!regular && content.size() > kMostFromPipe) {
      fail(path, "it must hold at most 256 MiB, because it is not a regular file; got more");
    }
  }
}

}  // namespace isentrope::command
