// isentrope COMMAND ...: runs one of its own commands, or the program isentrope-COMMAND that lies
// beside it or on PATH, as git and cargo do. So the laboratory, which needs libtorch, is a program
// of its own.

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "cli/commands.h"

namespace {

constexpr std::string_view kHelp = R"(Attention that knows how many keys each row sees.

usage: isentrope COMMAND [OPTION...]

  bench         time problems on every instruction set of this machine, and show the plan
  check         run problems on every instruction set of this machine, against the float64 reference
  extrapolate   train small language models that differ in their scale rule, evaluate them at
                lengths they never saw, and write a report
  inspect       entropy of every layer and head of a Hugging Face or GGUF model against the length
  report        write the report of a JSON result once more
  scale         the softmax scale of a rule, length by length, and the rule a model's config.json implies
  theory        what a scale does to entropy and gradient, and which scale suits a length

isentrope COMMAND --help tells more. Example:

  isentrope extrapolate --corpus data/king-james.txt --steps 100
  isentrope check 'shape=2x8:2x100x200x64 mask=causal:bottom_right bwd=1'
  isentrope scale 'entropy_invariant(base=512)' --compare log_length --dim 64
)";

// The external program's path: beside this one first, then whatever PATH finds.
std::string program_of(std::string_view command) {
  const std::string name = "isentrope-" + std::string(command);
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = self.parent_path() / name;
  return !error && std::filesystem::exists(beside) ? beside.string() : name;
}

// How to come by the commands that are programs of their own.
std::string_view advice(std::string_view command) {
  if (command == "extrapolate") {
    return "; the laboratory needs libtorch: in a checkout, make demo builds and runs it";
  }
  if (command == "inspect")
    return "; it comes with the Python package: pip install '.[inspect]' in a checkout";
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "--help";
  if (command == "--help" || command == "-h" || command == "help") {
    fmt::print("{}", kHelp);
    return argc > 1 ? 0 : 2;
  }
  if (command.starts_with('-') || command.find('/') != std::string_view::npos) {
    fmt::print(stderr, "isentrope: a command must come first; got \"{}\" (see isentrope --help)\n",
               command);
    return 2;
  }
  if (command == "bench") return isentrope::cli::bench_command(argc - 1, argv + 1);
  if (command == "check") return isentrope::cli::check_command(argc - 1, argv + 1);
  if (command == "scale") return isentrope::cli::scale_command(argc - 1, argv + 1);
  if (command == "theory") return isentrope::cli::theory_command(argc - 1, argv + 1);
  const std::string program = program_of(command);
  execvp(program.c_str(), argv + 1);
  fmt::print(stderr, "isentrope: no command \"{}\": there is no program isentrope-{} ({}){}\n",
             command, command, std::strerror(errno), advice(command));
  return 2;
}
