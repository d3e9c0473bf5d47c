// Records: what was measured of each trained model (lab/measure.h), put together over the seeds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace isentrope::analysis {

// The member "rules" of a result.json: each row (rows.h) over its seeds. At least one record, all
// of the same lengths.
[[nodiscard]] nlohmann::json rules_json(const std::vector<nlohmann::json>& records);

// The mean of the curves of constant gains, and where the records' rules are on them, as a scale
// over the standard one: {gain, accuracy: {"64": [...]}, cross_entropy, of_rules: {RULE: {"64":
// 1}}}. A learned rule is at no one place. Null when no record has a curve.
[[nodiscard]] nlohmann::json gains_json(const std::vector<nlohmann::json>& records);

// The entropy of uniform attention, in nats, mean over the rows of n tokens: ln n where every row
// sees all of them, the mean of ln 1, ..., ln n where a row sees the past alone.
[[nodiscard]] double uniform_entropy(std::int64_t n, bool causal);

}  // namespace isentrope::analysis
