#include "tools/cli/check_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace isentrope::cli {
namespace {

using check::Outcome;
using check::Problem;
using check::Verdict;

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

}  // namespace

CheckReport::CheckReport(std::vector<std::string> targets, const ReportForm& form)
    : targets_(std::move(targets)), form_(form) {}

void CheckReport::add(const Problem& problem, const std::string& target, const Verdict& verdict) {
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

int CheckReport::finish() const {
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

std::int64_t CheckReport::count(Outcome outcome) const {
  return counts_[static_cast<std::size_t>(outcome)];
}

void CheckReport::print_line(const Problem& problem, const std::string& target,
                             const Verdict& verdict) const {
  fmt::print("{:<10} {:<8} {}", name_of(verdict.outcome), target, text_of(problem));
  if (!verdict.reason.empty()) fmt::print(" ({})", verdict.reason);
  if (verdict.outcome != Outcome::skipped) {
    const check::Ratio& worst = verdict.worst();
    fmt::print("  error/budget {:.3g}{}{}", worst.worst, worst.where.empty() ? "" : ": ",
               worst.where);
  }
  fmt::print("\n");
}

void CheckReport::add_json(const Problem& problem, const std::string& target,
                           const Verdict& verdict) {
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

void CheckReport::print_maxima() const {
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

nlohmann::json CheckReport::ratios_json() const {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [result, of_target] : ratios_) {
    for (const auto& [target, ratios] : of_target) {
      all[result][target] = {{"maximum", maximum(ratios)}, {"quantiles", quantiles(ratios)}};
    }
  }
  return all;
}

}  // namespace isentrope::cli
