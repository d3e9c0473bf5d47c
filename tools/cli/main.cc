// isentrope COMMAND ...: runs one of its own commands, or the program isentrope-COMMAND next to it
// or on PATH, like git and cargo. The laboratory is a separate program, because it needs libtorch.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "isentrope/error.h"
#include "tools/cli/commands.h"
#include "tools/command/run.h"

namespace isentrope::cli {
namespace {

namespace fs = std::filesystem;

struct Command {
  std::string_view name, text;
  int (*run)(int argc, char** argv) = nullptr;  // null for a separate program
  std::string_view advice{};                    // how to install a missing program
  std::string_view example{};
};

constexpr std::string_view kFromPython =
    "it comes with the Python package: pip install '.[inspect]' in a checkout";

constexpr std::string_view kPackage =
    "it comes with the Python package: pip install . in a checkout";

constexpr std::array kCommands = {
    Command{"bench", "time problems on every instruction set of this machine, and show the plan",
            bench_command},
    Command{"calibrate",
            "measure the gain that a model with stretched RoPE needs, and test it on held-out text",
            nullptr, kFromPython},
    Command{"check",
            "compare problems on every instruction set of this machine with a float64 reference",
            check_command,
            {},
            "isentrope check 'shape=2x8:2x100x200x64 mask=causal:bottom_right bwd=1'"},
    Command{"doctor",
            "show versions, processors and the backend of each device, and check the results",
            nullptr, kPackage},
    Command{"evaluate", "measure the loss of a language model by position, under several rules",
            nullptr, kFromPython},
    Command{"extrapolate",
            "train small language models that differ in their scale rule, evaluate them at\n"
            "                lengths they never saw, and write a report",
            nullptr, "the laboratory needs libtorch: in a checkout, make demo builds and runs it",
            "isentrope extrapolate --corpus data/king-james.txt --steps 100"},
    Command{"inspect",
            "measure the entropy of every head of a Hugging Face or GGUF model by length", nullptr,
            kFromPython},
    Command{"report", "write the report of a JSON result again", report_command},
    Command{"scale",
            "show the softmax scale of a rule by length, or the rule of a model's config.json",
            scale_command,
            {},
            "isentrope scale 'entropy_invariant(base=512)' --compare log_length --dim 64"},
    Command{"theory",
            "show what a scale does to entropy and gradient, and which scale suits a length",
            theory_command},
    Command{"tune",
            "measure the fastest tiles of the GPU kernels on this card, which calls then use",
            nullptr, kPackage},
};

const Command* find(std::string_view name) {
  const auto* found = std::ranges::find(kCommands, name, &Command::name);
  return found == kCommands.end() ? nullptr : found;
}

// Returns the path of a command's program: next to this program, next to the script of the same
// name that started it (wheels have one), or on PATH.
std::optional<fs::path> program_of(std::string_view command, const char* called_as) {
  const std::string name = "isentrope-" + std::string(command);
  const auto is_program = [](const fs::path& path) { return access(path.c_str(), X_OK) == 0; };
  std::error_code error;
  const fs::path sibling = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  if (!error && is_program(sibling)) return sibling;
  const fs::path called = fs::path(called_as).parent_path();
  if (!called.empty() && is_program(called / name)) return called / name;
  const char* path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "" : path;
  while (!folders.empty()) {
    const auto end = std::min(folders.find(':'), folders.size());
    if (const fs::path found = fs::path(folders.substr(0, end)) / name;
        end > 0 && is_program(found))
      return found;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return {};
}

void print_help(const char* called_as) {
  fmt::print(
      "Attention whose scale follows the number of keys each row sees, with the entropy of every "
      "row.\n\nusage: isentrope COMMAND [OPTION...]\n\n");
  std::string missing, examples;
  for (const Command& command : kCommands) {
    if (command.run == nullptr && !program_of(command.name, called_as)) {
      missing += fmt::format("  {:<13} {}\n", command.name, command.advice);
      continue;
    }
    fmt::print("  {:<13} {}\n", command.name, command.text);
    if (!command.example.empty()) examples += fmt::format("  {}\n", command.example);
  }
  if (!missing.empty()) fmt::print("\nnot installed here:\n\n{}", missing);
  fmt::print("\nisentrope COMMAND --help lists its options. Examples:\n\n{}", examples);
}

// Runs the program and does not return, if it exists. `advice`: how to install it.
int run_program(std::string_view name, std::string_view advice, char** argv) {
  const auto program = program_of(name, argv[0]);
  if (program) execv(program->c_str(), argv + 1);
  throw Error(fmt::format("no command \"{0}\": there is no program isentrope-{0}{1}{2}{3}", name,
                          program ? fmt::format(" that runs ({})", std::strerror(errno)) : "",
                          advice.empty() ? "" : "; ", advice));
}

// Returns the backend of `isentrope check --backend gpu`, which is the program isentrope-check-gpu
// of the Python package.
std::string other_backend(int argc, char** argv) {
  std::string backend = "cpu";
  for (int i = 2; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--backend" && i + 1 < argc) backend = argv[i + 1];
    if (argument.starts_with("--backend=")) backend = argument.substr(10);
  }
  return backend == "gpu" ? "check-gpu" : "";
}

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  const Command* command = find(name);
  if (const std::string other = other_backend(argc, argv); name == "check" && !other.empty()) {
    return command::guarded("isentrope check", [&] { return run_program(other, kPackage, argv); });
  }
  if (command != nullptr && command->run != nullptr) return command->run(argc - 1, argv + 1);
  return command::guarded("isentrope", [&] {
    if (name == "--help" || name == "-h" || name == "help") {
      print_help(argc > 0 ? argv[0] : "");
      return argc > 1 ? 0 : 2;
    }
    if (name.starts_with('-') || name.find('/') != std::string_view::npos) {
      throw Error(
          fmt::format("a command must come first; got \"{}\" (see isentrope --help)", name));
    }
    return run_program(name, command == nullptr ? "" : command->advice, argv);
  });
}

}  // namespace
}  // namespace isentrope::cli

int main(int argc, char** argv) { return isentrope::cli::main(argc, argv); }
