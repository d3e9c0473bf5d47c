// Which of a part's keys each of its rows sees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isentrope/mask.h"
#include "src/tile_plan.h"

namespace isentrope {

// Of `queries` queries and `keys` keys in all. The rows of a part are those of `group` heads, one
// head after the other, all of which see the same. Returns the union.
inline KeyRange list_row_ranges(const Mask& mask, const Part& part, std::int64_t group,
                                std::int64_t queries, std::int64_t keys,
                                std::vector<KeyRange>& ranges) {
  ranges.clear();
  KeyRange seen{};
  for (std::int64_t query = part.begin; query < part.end; ++query) {
    const KeyRange all = row_view(mask, part.batch, query, queries, keys).keys;
    const KeyRange range{std::max(all.begin, part.first_key), std::min(all.end, part.last_key)};
    ranges.push_back(range);
    if (range.size() == 0) continue;
    if (seen.size() == 0) seen = range;
    seen = {std::min(seen.begin, range.begin), std::max(seen.end, range.end)};
  }
  const std::size_t of_head = ranges.size();
  for (std::size_t row = of_head; row < of_head * static_cast<std::size_t>(group); ++row) {
    ranges.push_back(ranges[row - of_head]);
  }
  return seen;
}

}  // namespace isentrope
