// Result: findings of an extrapolation run, parsed from its result.json (docs/result-schema.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/analysis/differences.h"

namespace isentrope::report {

// One number per test length. Lengths without a finite number are absent.
using ByLength = std::map<std::int64_t, double>;

// By name: accuracy in percent, cross_entropy in nats, and means over rows of entropy,
// gradient_mass, distance and share_beyond. Each is there, and empty without numbers.
using Measures = std::map<std::string_view, ByLength>;

struct SeedResult {
  std::optional<std::int64_t> seed;
  Measures measures;
};

struct RuleResult {
  std::string rule, kind;  // the rule, and which measurement (docs/result-schema.md)
  std::string name{};      // name of the row
  Measures mean;           // over the seeds
  Measures spread;         // standard deviation over the seeds; empty for one seed
  std::vector<SeedResult> seeds{};
  std::vector<double> loss;  // one per training step; NaN if it was non-finite
  std::optional<double> seconds_per_step{};
};

// Accuracy under constant gains, and the gains of the rules.
struct GainCurves {
  std::vector<double> gains;                          // rising
  std::map<std::int64_t, std::vector<double>> curve;  // by length
  std::map<std::string, ByLength> of_rules;
};

struct Result {
  std::vector<std::int64_t> lengths;   // increasing
  std::vector<RuleResult> rules;       // not empty
  std::string version, command, date;  // empty when absent
  std::optional<std::int64_t> train_length{};
  GainCurves gains;  // empty if not measured
  std::vector<analysis::Lead> leads;
  nlohmann::json config, corpus, machine;  // copied from the document

  // Returns the entropy of uniform attention by length, for the objective in `config`.
  [[nodiscard]] ByLength uniform_entropy() const;
};

// Parses the member "leads" of a result. Throws Error naming the key that violates the schema.
[[nodiscard]] std::vector<analysis::Lead> parse_leads(const nlohmann::json& leads);

// Parses a result; needs lengths and rules. Throws Error naming the key that violates the schema.
[[nodiscard]] Result parse_result(const nlohmann::json& document);

}  // namespace isentrope::report
