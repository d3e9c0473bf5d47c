#pragma once

#include <array>
#include <cstdint>

#include "isentrope/attention.h"

namespace isentrope::ggml {

// Returns the logit of the first key in row [batch, head, query], in double: -inf if the bias hides
// it. `visible`: the number of keys that the row sees, which the rule counts.
[[nodiscard]] double first_key_logit(const AttentionInput& input, const AttentionOptions& options,
                                     const std::array<std::int64_t, 3>& row, std::int64_t visible);

}  // namespace isentrope::ggml
