// Records: what was measured of each trained model (lab/measure.h), put together over the seeds.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace isentrope::report {

// The member "rules" of a result.json: what was trained, then what was rescaled, then near keys
// only, each over its seeds. At least one record, all of the same lengths.
[[nodiscard]] nlohmann::json rules_json(const std::vector<nlohmann::json>& records);

// The mean of the curves of constant gains: {gain, accuracy: {"64": [...]}, cross_entropy}. Null
// when no record has one.
[[nodiscard]] nlohmann::json gains_json(const std::vector<nlohmann::json>& records);

}  // namespace isentrope::report
