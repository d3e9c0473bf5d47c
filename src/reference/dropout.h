// What a weight of the reference counts for under dropout.
#pragma once

#include <cstdint>

#include "isentrope/attention.h"

namespace isentrope::reference {

// 0 where it is dropped, else 1 / (1 - dropout_p). `query` and `key` are of the call.
[[nodiscard]] double dropout_factor(const AttentionOptions& options, std::int64_t batch,
                                    std::int64_t head, std::int64_t query, std::int64_t key);

}  // namespace isentrope::reference
