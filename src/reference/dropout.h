// Factor of a weight of the reference under dropout.
#pragma once

#include <cstdint>

#include "isentrope/attention.h"

namespace isentrope::reference {

// Returns 0 for a dropped weight, else 1 / (1 - dropout_p). `query` and `key` count in the call.
[[nodiscard]] double dropout_factor(const AttentionOptions& options, std::int64_t batch,
                                    std::int64_t head, std::int64_t query, std::int64_t key);

}  // namespace isentrope::reference
