// Result: what an extrapolation run found, read from its result.json (docs/result-schema.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace isentrope::report {

// A number per test length. Lengths without a finite number are absent.
using ByLength = std::map<std::int64_t, double>;

struct Measures {
  ByLength accuracy;                // percent
  ByLength entropy, gradient_mass;  // means over rows
};

struct SeedResult {
  std::optional<std::int64_t> seed;
  Measures measures;
};

struct RuleResult {
  std::string rule;
  Measures mean;    // over the seeds
  Measures spread;  // standard deviation over the seeds; empty for one seed
  std::vector<SeedResult> seeds;
  std::vector<double> loss;  // one per training step; NaN where it was not finite
  std::optional<double> seconds_per_step;
  std::string trained_as;  // the rule whose training made this model too; empty: its own
};

struct Result {
  std::vector<std::int64_t> lengths;   // increasing
  std::vector<RuleResult> rules;       // not empty
  std::string version, command, date;  // empty when absent
  std::optional<std::int64_t> train_length;
  nlohmann::json config, corpus, machine;  // objects, as they were
};

// Only lengths and rules are required. Throws Error naming the key that is not what the schema
// says.
[[nodiscard]] Result parse_result(const nlohmann::json& document);

}  // namespace isentrope::report
