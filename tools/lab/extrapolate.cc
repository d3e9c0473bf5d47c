// isentrope extrapolate: parses its options and starts the training program. That one loads
// libtorch, which help and errors about options should not wait for.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "isentrope/error.h"
#include "tools/command/run.h"
#include "tools/lab/options.h"

namespace {

namespace fs = std::filesystem;
using isentrope::Error;

// Runs the trainer next to this program. Does not return.
[[noreturn]] void run_trainer(char** argv) {
  const fs::path trainer =
      fs::read_symlink("/proc/self/exe").parent_path() / "isentrope-extrapolate-trainer";
  execv(trainer.c_str(), argv);
  throw Error(fmt::format("cannot run \"{}\": {}", trainer.string(), std::strerror(errno)));
}

}  // namespace

int main(int argc, char** argv) {
  return isentrope::command::guarded("isentrope extrapolate", [&] {
    if (isentrope::lab::parse_command_line(argc, argv)) run_trainer(argv);
    return 0;
  });
}
