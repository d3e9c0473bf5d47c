// Dropout: decides which weights of a call are kept, and scales them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "isentrope/attention.h"

namespace isentrope {

// Weight (batch, head, query, key) has 32 random bits: word key % 4 of Philox4x32-10 under the
// seed, at the counter (key / 4, query, head, batch). It is kept if they are at least `least`.
// Every backend draws the same bits; docs/adr/0013 has the reasons.
struct Dropout {
  explicit Dropout(const AttentionOptions& options)
      : seed{static_cast<std::uint32_t>(options.dropout_seed),
             static_cast<std::uint32_t>(options.dropout_seed >> 32)},
        least(static_cast<std::uint32_t>(
            std::nearbyint(std::ldexp(static_cast<double>(options.dropout_p), 32)))),
        factor(static_cast<float>(1 / (1 - static_cast<double>(options.dropout_p)))),
        drops(options.dropout_p > 0),
        query_offset(options.mask.query_offset),
        key_offset(options.mask.key_offset) {}

  explicit operator bool() const { return drops; }

  std::array<std::uint32_t, 2> seed;
  std::uint32_t least;
  float factor;  // of kept weights
  bool drops;
  std::int64_t query_offset,
      key_offset;  // positions of this call's first query and key in its sequence
};

}  // namespace isentrope
