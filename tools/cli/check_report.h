// Output of `isentrope check`: a line for each problem, then the counts; or JSON.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/check/judge.h"

namespace isentrope::cli {

struct ReportForm {
  bool json = false;
  bool quiet = false;   // prints only problems that did not pass
  bool maxima = false;  // prints the largest errors over budget instead of a line a problem
};

class CheckReport {
 public:
  CheckReport(std::vector<std::string> targets, const ReportForm& form);

  void add(const check::Problem& problem, const std::string& target, const check::Verdict& verdict);

  // Prints the summary; returns the exit status.
  [[nodiscard]] int finish() const;

 private:
  // Error over budget of one result, such as "output bf16", in each problem that has it.
  using RatiosOfTarget = std::map<std::string, std::vector<double>>;

  [[nodiscard]] std::int64_t count(check::Outcome outcome) const;
  void print_line(const check::Problem& problem, const std::string& target,
                  const check::Verdict& verdict) const;
  void add_json(const check::Problem& problem, const std::string& target,
                const check::Verdict& verdict);
  void print_maxima() const;
  [[nodiscard]] nlohmann::json ratios_json() const;

  const std::vector<std::string> targets_;
  const ReportForm form_;
  std::array<std::int64_t, 4> counts_{};
  std::map<std::string, RatiosOfTarget> ratios_;
  nlohmann::json verdicts_ = nlohmann::json::array();
};

}  // namespace isentrope::cli
