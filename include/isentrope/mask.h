// Mask: which keys a row may see. A structural mask admits one interval of keys per row.
#pragma once

#include <cstdint>

#include "isentrope/scale_rule.h"

namespace isentrope {

// Where the causal diagonal lies when there are fewer or more queries than keys. With 2 queries and
// 4 keys (x: admitted):
//
//   top_left  x . . .      bottom_right  x x x .
//             x x . .                    x x x x
enum class Causal { none, top_left, bottom_right };

struct Mask {
  Causal causal = Causal::none;

  bool operator==(const Mask&) const = default;
};

// Keys begin, begin + 1, ..., end - 1; none when end <= begin.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] constexpr std::int64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(const KeyRange&) const = default;
};

// The keys that row `query` of `queries` may see, of `keys`. The end never decreases with the query.
[[nodiscard]] constexpr KeyRange visible_keys(const Mask& mask, std::int64_t query,
                                              std::int64_t queries, std::int64_t keys) {
  if (mask.causal == Causal::none) return {0, keys};
  const std::int64_t shift = mask.causal == Causal::bottom_right ? keys - queries : 0;
  const std::int64_t end = query + shift + 1;
  return {0, end < 0 ? 0 : (end > keys ? keys : end)};
}

// What a scale rule may know of row `query`: the keys it sees, its position counted in keys, all keys.
[[nodiscard]] constexpr RowLength row_length(const Mask& mask, std::int64_t query,
                                             std::int64_t queries, std::int64_t keys) {
  const std::int64_t shift = mask.causal == Causal::bottom_right ? keys - queries : 0;
  return {.visible = visible_keys(mask, query, queries, keys).size(),
          .position = query + shift,
          .total = keys};
}

}  // namespace isentrope
