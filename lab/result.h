// What an experiment found: result.json (docs/result-schema.md) and the table.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/evaluate.h"

namespace isentrope::lab {

// One model: a rule and a seed.
struct ModelResult {
  std::uint64_t seed = 0;
  std::int64_t parameters = 0;
  std::vector<Evaluation> evaluations;  // one per length
  std::vector<double> loss;             // of each step
  double seconds_per_step = 0;
  std::string trained_as{};  // another rule, whose training made this model too; empty: its own
};

// One rule, over its seeds: a member of "rules". At least one model.
[[nodiscard]] nlohmann::json rule_json(const std::string& rule,
                                       const std::vector<std::int64_t>& lengths,
                                       const std::vector<ModelResult>& models);

// The member "evaluation", from any model.
[[nodiscard]] nlohmann::json evaluation_json(const std::vector<std::int64_t>& lengths,
                                             const ModelResult& model);

// The member "machine".
[[nodiscard]] nlohmann::json machine_json();

// Accuracy, entropy and gradient mass of every rule at every length, as text for people.
[[nodiscard]] std::string table(const nlohmann::json& result);

}  // namespace isentrope::lab
