// Keys and scale of each row by masks and rule, computed by the device once per call.
#pragma once

#include <optional>

#include "src/gpu/launch.h"

namespace isentrope::cuda {

struct Rows {
  std::int64_t batches = 1, heads = 1;  // 1 if all are the same
  // int32 [batches, queries]: the keys that rows see, and the key at their own position.
  Address begins = 0, ends = 0, own_keys = 0;
  // f32 [4, batches, heads, queries]; the last slice is lambda.
  Address scales = 0;
  std::int64_t plane = 0;  // of scales: batches x heads x queries
  std::optional<Scratch> integers, floats;
};

// Counters of a call whose keys are split: int32 [blocks], which become 0.
struct Counters {
  Address address = 0;
  std::int64_t blocks = 0;
};

// tile: rows of a query block.
[[nodiscard]] Rows rows_of(const AttentionInput& input, const AttentionOptions& options,
                           std::int64_t tile, const Counters& counters, Device::State& device,
                           Handle stream);

}  // namespace isentrope::cuda
