// What the masks and the rule say of each row of a call, found by the device once a call.
#pragma once

#include <optional>

#include "cuda/launch.h"

namespace isentrope::cuda {

struct Rows {
  std::int64_t batches = 1, heads = 1;  // 1 where all are alike
  // Of rows [batches, queries], keys they see and the key at their own position, int32.
  Address begins = 0, ends = 0, own_keys = 0;
  // f32 [4, batches, heads, queries], of which the last is lambda.
  Address scales = 0;
  std::int64_t plane = 0;  // of scales: batches x heads x queries
  std::optional<Scratch> integers, floats;
};

// tile: rows of a query block.
[[nodiscard]] Rows rows_of(const AttentionInput& input, const AttentionOptions& options,
                           std::int64_t tile, Device::State& device, Handle stream);

}  // namespace isentrope::cuda
