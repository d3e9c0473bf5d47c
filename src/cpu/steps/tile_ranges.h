// TileRanges: keys of one block that each row of a row tile sees.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "isentrope/mask.h"

namespace isentrope {

// Ranges count from the block's first key.
template <std::size_t kRows>
struct TileRanges {
  std::array<std::size_t, kRows> begin, end;
  std::size_t first = 0, last = 0;  // union over the rows; empty if first == last
  std::size_t block = 0;            // keys of the block
  bool ragged = false;              // whether some row sees less than the union
  std::size_t stride = 1;           // of each row's keys, from its begin on

  // range_of_row(r) returns the keys that row r of the row tile sees in the whole call.
  template <typename RangeOfRow>
  TileRanges(std::size_t rows, std::int64_t first_key, std::int64_t block_keys,
             const RangeOfRow& range_of_row)
      : block(static_cast<std::size_t>(block_keys)) {
    const auto clip = [&](std::int64_t key) {
      return static_cast<std::size_t>(std::clamp(key - first_key, std::int64_t{0}, block_keys));
    };
    // An empty range must not widen the union, because its begin may be anywhere.
    for (std::size_t r = 0; r < rows; ++r) {
      KeyRange range = range_of_row(r);
      if (range.stride > 1) range = range.within(first_key, first_key + block_keys);
      begin[r] = clip(range.begin);
      end[r] = std::max(begin[r], clip(range.end));
      if (begin[r] == end[r]) continue;
      first = first == last ? begin[r] : std::min(first, begin[r]);
      last = std::max(last, end[r]);
      stride = static_cast<std::size_t>(range.stride);
    }
    // A row that sees nothing of the block gets an empty range at the union's first key.
    for (std::size_t r = 0; r < rows; ++r) {
      if (begin[r] == end[r]) begin[r] = end[r] = first;
      ragged |= begin[r] != first || end[r] != last || stride > 1;
    }
  }

  [[nodiscard]] bool sees(std::size_t row, std::size_t key) const {
    return begin[row] <= key && key < end[row] && (stride == 1 || (key - begin[row]) % stride == 0);
  }
  // Returns how many keys the row sees.
  [[nodiscard]] std::size_t count(std::size_t row) const {
    const std::size_t hull = end[row] - begin[row];
    return stride == 1 ? hull : (hull + stride - 1) / stride;
  }
  [[nodiscard]] bool empty() const { return first == last; }
};

}  // namespace isentrope
