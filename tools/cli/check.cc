// isentrope check: runs conformance problems, one a line, on every instruction set of this machine,
// and compares with the float64 reference.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/target.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"
#include "tools/cli/check_report.h"
#include "tools/cli/commands.h"
#include "tools/cli/problems.h"
#include "tools/command/arguments.h"
#include "tools/command/reading.h"
#include "tools/command/run.h"

namespace isentrope::cli {
namespace {

using check::Judge;
using check::Problem;

struct CheckArguments {
  std::vector<std::string> lines, targets;
  std::optional<std::string> file;
  std::string backend = "cpu";  // main() handles any other backend
  std::int64_t generate = 0;
  std::uint64_t seed = 1;
  std::int64_t work = check::kSmallProblem;
  ReportForm form;
};

// Appends lines, without blank ones and comments after #.
void add_lines(const std::string& text, std::vector<std::string>& lines) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
    begin = end + 1;
  }
}

// Returns the user's problems; all are parsed before the first is run.
std::vector<Problem> written_problems(const CheckArguments& arguments) {
  std::vector<std::string> lines = arguments.lines;
  if (arguments.file) add_lines(command::read_file(*arguments.file), lines);
  std::vector<Problem> problems;
  for (const std::string& line : lines) problems.push_back(problem_of(line));
  if (problems.empty() && arguments.generate == 0)
    throw Error("a problem LINE, --file or --generate must be given");
  return problems;
}

int run_check(const CheckArguments& arguments) {
  const std::vector<Problem> written = written_problems(arguments);
  std::vector<std::string> targets = arguments.targets;
  if (targets.empty()) targets = supported_targets();
  for (const std::string& target : targets)
    use_target(target);  // throws for a wrong name before any work
  CheckReport report(targets, arguments.form);
  const auto run = [&](const Problem& problem) {
    const Judge judge(problem);
    for (const std::string& target : targets) {
      use_target(target);
      try {
        report.add(problem, target, judge.judge());
      } catch (const Error& error) {
        throw Error(text_of(problem) + ": " + error.what());
      }
    }
  };
  for (const Problem& problem : written) run(problem);
  for (std::int64_t i = 0; i < arguments.generate; ++i)
    run(check::generated_problem(arguments.seed, i, arguments.work));
  return report.finish();
}

}  // namespace

int check_command(int argc, char** argv) {
  CLI::App app(
      "Compares problems on every instruction set of this machine with the float64 reference:\n"
      "isentrope check 'dt=bf16 shape=2x8:2x333x517x64 mask=causal:bottom_right,window=100:0 "
      "bwd=1'\n"
      "The window of query i is centred on key i + keys - queries, causal or not; with "
      "causal:top_left on key i.\n"
      "The exit status is 1 if a problem fails, and 2 if a line is not a problem.",
      "isentrope check");
  CheckArguments arguments;
  int status = 0;
  app.add_option("LINE", arguments.lines, "a problem, as one argument");
  app.add_option("--file", arguments.file, "file of problems, one per line; # begins a comment");
  app.add_option("--generate", arguments.generate, "number of problems to generate from --seed")
      ->check(command::whole_number(0, 10'000'000));
  app.add_option("--seed", arguments.seed, "seed of the generated problems (1)")
      ->check(command::whole_number(0, std::numeric_limits<std::int64_t>::max()));
  app.add_option("--work", arguments.work,
                 "size of generated problems, in multiplications of a forward pass")
      ->check(command::whole_number(1, 1'000'000'000'000))
      ->capture_default_str();
  app.add_option("--backend", arguments.backend,
                 "cpu, or gpu: the Triton kernels of the Python package")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  app.add_option("--targets", arguments.targets, "instruction sets, such as AVX2,EMU128 (all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--json", arguments.form.json,
               "print JSON: verdicts, and the largest ratio of each result");
  app.add_flag("--quiet", arguments.form.quiet, "show only problems that did not pass");
  app.add_flag("--maxima", arguments.form.maxima,
               "show only the largest error over budget of each result");
  app.callback([&] { status = run_check(arguments); });
  return command::guarded(app.get_name(), [&] {
    command::parse(app, argc, argv);
    return status;
  });
}

}  // namespace isentrope::cli
