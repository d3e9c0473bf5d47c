#include "tools/command/memory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace isentrope::command {

std::uint64_t machine_memory() {
  std::uint64_t bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  // Limits of control groups, versions 2 and 1. A missing file, or "max", is no limit.
  for (const char* limit :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::uint64_t most = 0;
    if (std::ifstream(limit) >> most) bytes = std::min(bytes, most);
  }
  return bytes;
}

std::string bytes_text(double bytes) {
  int power = 0;
  for (; bytes >= 1024 && power < 6; ++power) bytes /= 1024;
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return fmt::format("{:.{}f} {}", bytes, power == 0 ? 0 : 1, kUnits[power]);
}

}  // namespace isentrope::command
