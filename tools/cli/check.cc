// isentrope check: runs conformance problems, one a line, on every instruction set of this machine,
// and compares with the float64 reference.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "isentrope/error.h"
#include "isentrope/target.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"
#include "tools/cli/commands.h"
#include "tools/cli/problems.h"
#include "tools/command/arguments.h"
#include "tools/command/reading.h"
#include "tools/command/run.h"

namespace isentrope::cli {
namespace {

using check::Judge;
using check::Outcome;
using check::Problem;
using check::Verdict;

struct ReportForm {
  bool json = false;
  bool quiet = false;   // prints only problems that did not pass
  bool maxima = false;  // prints the largest errors over budget instead of a line a problem
};

// Steps of the quantiles that JSON reports for each result: 0, 5, ... 100 %.
constexpr std::size_t kQuantiles = 20;

double maximum(const std::vector<double>& ratios) {
  return ratios.empty() ? 0 : *std::ranges::max_element(ratios);
}

nlohmann::json quantiles(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  nlohmann::json result = nlohmann::json::array();
  for (std::size_t i = 0; i <= kQuantiles; ++i) {
    result.push_back(ratios[i * (ratios.size() - 1) / kQuantiles]);
  }
  return result;
}

// Output: a line for each problem, then the counts; or JSON.
class CheckReport {
 public:
  CheckReport(std::vector<std::string> targets, const ReportForm& form)
      : targets_(std::move(targets)), form_(form) {}

  void add(const Problem& problem, const std::string& target, const Verdict& verdict) {
    ++counts_[static_cast<std::size_t>(verdict.outcome)];
    for (const check::Ratio* ratio :
         {&verdict.forward, &verdict.backward, &verdict.tangent, &verdict.second_order}) {
      for (const auto& [name, worst] : ratio->of_result) {
        ratios_[name + " " + name_of(problem.type)][target].push_back(worst);
      }
    }
    if (form_.quiet && verdict.outcome == Outcome::passed) return;
    if (form_.maxima && verdict.outcome != Outcome::failed) return;
    if (form_.json) return add_json(problem, target, verdict);
    print_line(problem, target, verdict);
  }

  // Prints the summary; returns the exit status.
  [[nodiscard]] int finish() const {
    if (form_.json) {
      const nlohmann::json summary{{"passed", count(Outcome::passed)},
                                   {"failed", count(Outcome::failed)},
                                   {"mistrusted", count(Outcome::mistrusted)},
                                   {"skipped", count(Outcome::skipped)}};
      const nlohmann::json all{
          {"verdicts", verdicts_}, {"summary", summary}, {"error_over_budget", ratios_json()}};
      fmt::print("{}\n", all.dump(1));
    } else {
      if (form_.maxima) print_maxima();
      fmt::print("{} passed, {} failed, {} mistrusted, {} skipped\n", count(Outcome::passed),
                 count(Outcome::failed), count(Outcome::mistrusted), count(Outcome::skipped));
    }
    return count(Outcome::failed) > 0 ? 1 : 0;
  }

 private:
  // Error over budget of one result, such as "output bf16", in each problem that has it.
  using RatiosOfTarget = std::map<std::string, std::vector<double>>;

  [[nodiscard]] std::int64_t count(Outcome outcome) const {
    return counts_[static_cast<std::size_t>(outcome)];
  }

  void print_line(const Problem& problem, const std::string& target, const Verdict& verdict) const {
    fmt::print("{:<10} {:<8} {}", name_of(verdict.outcome), target, text_of(problem));
    if (!verdict.reason.empty()) fmt::print(" ({})", verdict.reason);
    if (verdict.outcome != Outcome::skipped) {
      const check::Ratio& worst = verdict.worst();
      fmt::print("  error/budget {:.3g}{}{}", worst.worst, worst.where.empty() ? "" : ": ",
                 worst.where);
    }
    fmt::print("\n");
  }

  void add_json(const Problem& problem, const std::string& target, const Verdict& verdict) {
    nlohmann::json entry{
        {"problem", text_of(problem)}, {"target", target}, {"outcome", name_of(verdict.outcome)}};
    if (!verdict.reason.empty()) entry["reason"] = verdict.reason;
    for (const auto& [pass, ratio] : {std::pair{"forward", &verdict.forward},
                                      {"backward", &verdict.backward},
                                      {"tangent", &verdict.tangent},
                                      {"second_order", &verdict.second_order}}) {
      // JSON has no infinity, so an unexpectedly non-finite result has the ratio null.
      if (!ratio->of_result.empty()) {
        entry[pass] = {{"error_over_budget", ratio->worst}, {"worst", ratio->where}};
      }
    }
    verdicts_.push_back(entry);
  }

  void print_maxima() const {
    fmt::print("| result |");
    for (const std::string& target : targets_) fmt::print(" {} |", target);
    fmt::print("\n|---|");
    for (std::size_t i = 0; i < targets_.size(); ++i) fmt::print("---|");
    fmt::print("\n");
    for (const auto& [result, of_target] : ratios_) {
      fmt::print("| {} |", result);
      for (const std::string& target : targets_) {
        const auto found = of_target.find(target);
        fmt::print(" {:.2g} |", found == of_target.end() ? 0.0 : maximum(found->second));
      }
      fmt::print("\n");
    }
  }

  [[nodiscard]] nlohmann::json ratios_json() const {
    nlohmann::json all = nlohmann::json::object();
    for (const auto& [result, of_target] : ratios_) {
      for (const auto& [target, ratios] : of_target) {
        all[result][target] = {{"maximum", maximum(ratios)}, {"quantiles", quantiles(ratios)}};
      }
    }
    return all;
  }

  const std::vector<std::string> targets_;
  const ReportForm form_;
  std::array<std::int64_t, 4> counts_{};
  std::map<std::string, RatiosOfTarget> ratios_;
  nlohmann::json verdicts_ = nlohmann::json::array();
};

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
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
}

// Returns the user's problems; all are parsed before the first is run.
std::vector<Problem> written_problems(const CheckArguments& arguments) {
  std::vector<std::string> lines = arguments.lines;
  if (arguments.file) add_lines(command::read_file(*arguments.file), lines);
  std::vector<Problem> problems;
  for (const std::string& line : lines) problems.push_back(problem_of(line));
  if (problems.empty() && arguments.generate == 0)
    throw Error("LINE, --file and --generate must give at least one problem; got none");
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
