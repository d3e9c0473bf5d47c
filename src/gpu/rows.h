// Keys and scale of each row by masks and rule, computed by the device once per call.
#pragma once

#include <optional>

#include "src/gpu/call.h"

namespace isentrope::cuda {

struct Rows {
  std::int64_t batches = 1, heads = 1;  // 1 if all are the same
  // int32 [batches, queries]: the keys that rows see, and the key at their own position.
  Address begins = 0, ends = 0, own_keys = 0;
  // int32 [batches, tiles, 4]: the keys that tiles of rows see.
  Address tiles = 0;
  // f32 [3, batches, heads, queries].
  Address scales = 0;
  std::optional<Scratch> integers, floats;
};

// tile: rows of a query block. to_lambda: f32 [batch, heads, queries], which receives the
// statistic; 0 if it is not requested. Then the keys that a boolean mask leaves are counted,
// whatever the rule reads.
[[nodiscard]] Rows rows_of(const Call& call, std::int64_t tile, Address to_lambda);

}  // namespace isentrope::cuda
