// isentrope check: conformance problems, one a line, on every instruction set this machine has, against the
// float64 reference.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/generate.h"
#include "check/judge.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/run.h"
#include "isentrope/error.h"
#include "isentrope/target.h"

namespace isentrope::cli {
namespace {

using check::Judge;
using check::Outcome;
using check::Problem;
using check::Verdict;

struct CheckArguments {
  std::vector<std::string> lines, targets;
  std::string file;
  std::int64_t generate = 0;
  std::uint64_t seed = 1;
  std::int64_t work = check::kSmallProblem;
  bool json = false, quiet = false, maxima = false;
};

// Blank lines and what follows a # are no problems.
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

std::vector<Problem> problems_of(const CheckArguments& arguments) {
  std::vector<std::string> lines = arguments.lines;
  if (!arguments.file.empty()) add_lines(read_file(arguments.file), lines);
  std::vector<Problem> problems;
  for (const std::string& line : lines) problems.push_back(check::parse_problem(line));
  for (std::int64_t i = 0; i < arguments.generate; ++i) {
    problems.push_back(check::generated_problem(arguments.seed, i, arguments.work));
  }
  if (problems.empty()) throw Error("a problem LINE, --file or --generate must be given");
  return problems;
}

// One verdict after the other, counted and shown.
class Report {
 public:
  explicit Report(const CheckArguments& arguments) : arguments_(arguments) {}

  void add(const Problem& problem, const std::string& target, const Verdict& verdict) {
    ++counts_[static_cast<std::size_t>(verdict.outcome)];
    for (const check::Ratio* ratio : {&verdict.forward, &verdict.backward}) {
      for (const auto& [name, worst] : ratio->of_result) {
        double& most = maxima_[name + " " + name_of(problem.type)][target];
        most = std::max(most, worst);
      }
    }
    if (arguments_.json) return add_json(problem, target, verdict);
    if (arguments_.maxima && verdict.outcome != Outcome::failed) return;
    if (arguments_.quiet && verdict.outcome == Outcome::passed) return;
    fmt::print("{:<10} {:<8} {}", check::name_of(verdict.outcome), target, text_of(problem));
    if (!verdict.reason.empty()) fmt::print(" ({})", verdict.reason);
    if (verdict.outcome != Outcome::skipped) {
      fmt::print("  error/budget {:.3g}{}{}", verdict.worst().worst, verdict.worst().where.empty() ? "" : ": ",
                 verdict.worst().where);
    }
    fmt::print("\n");
  }

  // Prints the summary; returns the exit status.
  int finish(const std::vector<std::string>& targets) {
    if (arguments_.json) {
      fmt::print("{}\n", nlohmann::json{{"verdicts", verdicts_}, {"summary", summary()}}.dump(2));
    } else {
      if (arguments_.maxima) print_maxima(targets);
      fmt::print("{} passed, {} failed, {} mistrusted, {} skipped\n", count(Outcome::passed),
                 count(Outcome::failed), count(Outcome::mistrusted), count(Outcome::skipped));
    }
    return count(Outcome::failed) > 0 ? 1 : 0;
  }

 private:
  [[nodiscard]] std::int64_t count(Outcome outcome) const { return counts_[static_cast<std::size_t>(outcome)]; }

  [[nodiscard]] nlohmann::json summary() const {
    return {{"passed", count(Outcome::passed)},
            {"failed", count(Outcome::failed)},
            {"mistrusted", count(Outcome::mistrusted)},
            {"skipped", count(Outcome::skipped)}};
  }

  void add_json(const Problem& problem, const std::string& target, const Verdict& verdict) {
    nlohmann::json entry{{"problem", text_of(problem)}, {"target", target},
                         {"outcome", check::name_of(verdict.outcome)}};
    if (!verdict.reason.empty()) entry["reason"] = verdict.reason;
    for (const auto& [name, ratio] : {std::pair{"forward", &verdict.forward}, {"backward", &verdict.backward}}) {
      // JSON has no infinity: a result that is not finite where it should be has the ratio null.
      if (!ratio->of_result.empty()) {
        entry[name] = {{"error_over_budget", ratio->worst}, {"worst", ratio->where}};
      }
    }
    verdicts_.push_back(entry);
  }

  // A Markdown table: the largest error over budget of each result, per type and target.
  void print_maxima(const std::vector<std::string>& targets) const {
    fmt::print("| result |");
    for (const std::string& target : targets) fmt::print(" {} |", target);
    fmt::print("\n|---|");
    for (std::size_t i = 0; i < targets.size(); ++i) fmt::print("---|");
    fmt::print("\n");
    for (const auto& [name, worst] : maxima_) {
      fmt::print("| {} |", name);
      for (const std::string& target : targets) {
        const auto found = worst.find(target);
        fmt::print(" {:.2g} |", found == worst.end() ? 0.0 : found->second);
      }
      fmt::print("\n");
    }
  }

  const CheckArguments& arguments_;
  std::int64_t counts_[4] = {};
  std::map<std::string, std::map<std::string, double>> maxima_;
  nlohmann::json verdicts_ = nlohmann::json::array();
};

int run_check(const CheckArguments& arguments) {
  const std::vector<Problem> problems = problems_of(arguments);
  std::vector<std::string> targets = arguments.targets;
  if (targets.empty()) targets = supported_targets();
  for (const std::string& target : targets) use_target(target);  // a wrong name ends it before any work
  Report report(arguments);
  for (const Problem& problem : problems) {
    const Judge judge(problem);
    for (const std::string& target : targets) {
      use_target(target);
      try {
        report.add(problem, target, judge.judge());
      } catch (const Error& error) {
        throw Error(text_of(problem) + ": " + error.what());
      }
    }
  }
  return report.finish(targets);
}

}  // namespace

int check_command(int argc, char** argv) {
  CLI::App app(
      "Conformance problems on every instruction set of this machine, against the float64 reference:\n"
      "isentrope check 'dt=bf16 shape=2x8:2x333x517x64 mask=causal:bottom_right,window=100:0 bwd=1'\n"
      "Exit status 1 when one fails, 2 for input that is no problem.",
      "isentrope check");
  CheckArguments arguments;
  int status = 0;
  app.add_option("LINE", arguments.lines, "a problem, as one argument");
  app.add_option("--file", arguments.file, "problems, one a line; # begins a comment");
  app.add_option("--generate", arguments.generate, "so many problems, from --seed")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", arguments.seed, "names the set of generated problems (1)");
  app.add_option("--work", arguments.work, "size of generated problems: multiplications of a forward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--targets", arguments.targets, "instruction sets, such as AVX2,EMU128 (all)")->delimiter(',');
  app.add_flag("--json", arguments.json, "JSON on stdout");
  app.add_flag("--quiet", arguments.quiet, "show only what did not pass");
  app.add_flag("--maxima", arguments.maxima, "the largest error over budget of each result, as a table");
  app.callback([&] { status = run_check(arguments); });
  const int parsed = run(app, argc, argv);
  return parsed != 0 ? parsed : status;
}

}  // namespace isentrope::cli
