// Records: measurements of trained models (tools/lab/measure.h), combined over seeds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace isentrope::analysis {

// Returns the member "rules" of a result.json: each row (rows.h) over its seeds. Needs at least one
// record, all with the same lengths.
[[nodiscard]] nlohmann::json rules_json(const std::vector<nlohmann::json>& records);

// Returns the mean curves of constant gains, and the gains of the records' rules over the standard
// scale: {gain, accuracy: {"64": [...]}, cross_entropy, of_rules: {RULE: {"64": 1}}}. Learned rules
// have no single gain. Null if no record has a curve.
[[nodiscard]] nlohmann::json gains_json(const std::vector<nlohmann::json>& records);

// Returns the mean entropy of uniform attention over n rows, in nats: ln n if every row sees all
// tokens, the mean of ln 1, ..., ln n if causal.
[[nodiscard]] double uniform_entropy(std::int64_t n, bool causal);

}  // namespace isentrope::analysis
