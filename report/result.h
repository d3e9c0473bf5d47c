// Result: what an extrapolation run found, read from its result.json (docs/result-schema.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/analysis/leads.h"

namespace isentrope::report {

// A number per test length. Lengths without a finite number are absent.
using ByLength = std::map<std::int64_t, double>;

struct Measures {
  ByLength accuracy;                                        // percent
  ByLength cross_entropy;                                   // nats
  ByLength entropy, gradient_mass, distance, share_beyond;  // means over rows
};

struct SeedResult {
  std::optional<std::int64_t> seed;
  Measures measures;
};

struct RuleResult {
  std::string rule, kind;  // what was measured of its model (docs/result-schema.md)
  std::string name;        // of the row: the rule, and what it stands on
  Measures mean;           // over the seeds
  Measures spread;         // standard deviation over the seeds; empty for one seed
  std::vector<SeedResult> seeds;
  std::vector<double> loss;  // one per training step; NaN where it was not finite
  std::optional<double> seconds_per_step;
};

// Accuracy under constant gains, and where rules are among them.
struct GainCurves {
  std::vector<double> gains;                          // rising
  std::map<std::int64_t, std::vector<double>> curve;  // by length
  std::map<std::string, ByLength> of_rules;
};

struct Result {
  std::vector<std::int64_t> lengths;   // increasing
  std::vector<RuleResult> rules;       // not empty
  std::string version, command, date;  // empty when absent
  std::optional<std::int64_t> train_length;
  GainCurves gains;  // without gains when there are none
  std::vector<analysis::Lead> leads;
  nlohmann::json config, corpus, machine;  // objects, as they were

  // The entropy of uniform attention by length, for the objective that `config` names.
  [[nodiscard]] ByLength uniform_entropy() const;
};

// The member "leads" of a result. Throws Error naming the key that is not what the schema says.
[[nodiscard]] std::vector<analysis::Lead> parse_leads(const nlohmann::json& leads);

// Only lengths and rules are required. Throws Error naming the key that is not what the schema
// says.
[[nodiscard]] Result parse_result(const nlohmann::json& document);

}  // namespace isentrope::report
