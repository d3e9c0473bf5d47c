// Decisions of a call on a device that follow from its arguments, made here for C++ and for Python.
#pragma once

#include <cstdint>

#include "isentrope/attention.h"

namespace isentrope {

// Type, name and default of each decision, from which the struct and its form for Python are made.
#define ISENTROPE_DECISIONS(DECISION)                                                            \
  /* Rows of all query heads that share a key head are in one tile: decode steps. */             \
  DECISION(bool, packed, false)                                                                  \
  /* Query blocks are cut from `length` rows of each of `lanes` heads of a sequence. */          \
  DECISION(std::int64_t, lanes, 0)                                                               \
  DECISION(std::int64_t, length, 0)                                                              \
  /* A boolean mask, a bias or a dilation may hide any key. */                                   \
  DECISION(bool, masked, false)                                                                  \
  /* Keys of a row are so far apart. Larger numbers than 2^31 - 1 have the same effect. */       \
  DECISION(std::int64_t, dilation, 1)                                                            \
  /* Rows of a query block may see different keys of a tile; or keys of a tile may be seen by */ \
  /* different rows. Sums of such programs are checked, and repaired if they are not finite. */  \
  DECISION(bool, rows_differ, false)                                                             \
  DECISION(bool, keys_differ, false)                                                             \
  /* The forward pass is checked, if a statistic needs moments of logits: one of -inf makes */   \
  /* them NaN. Few rows are masked at once instead. */                                           \
  DECISION(bool, moments_checked, false)                                                         \
  /* No row sees a key after its own position, whatever the arrays of the call hold. */          \
  DECISION(bool, own_is_last, false)                                                             \
  /* Scales and keys of rows may differ between sequences or between heads, the rule aside. */   \
  DECISION(bool, by_batch, false)                                                                \
  DECISION(bool, by_head, false)

struct DevicePlan {
#define ISENTROPE_FIELD(type, name, fallback) type name = fallback;
  ISENTROPE_DECISIONS(ISENTROPE_FIELD)
#undef ISENTROPE_FIELD
};

// Reads shapes and numbers of a valid call, not arrays.
[[nodiscard]] DevicePlan device_plan(const AttentionInput& input, const AttentionOptions& options);

// Returns the number of shares that the keys of each of `blocks` query blocks are split into, so
// that programs fill whole waves; 1: not split. wave: programs that the device runs at once. tile:
// keys of a tile. Takes the fewest shares whose last wave is nearly as full as any that up to two
// waves allow: each share costs a write and a merge.
[[nodiscard]] std::int64_t shares_of(std::int64_t wave, std::int64_t blocks, std::int64_t keys,
                                     std::int64_t tile);

}  // namespace isentrope
