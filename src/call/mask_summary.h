// MaskSummary: what boolean mask and bias leave of each row's keys, read once a call.
//
// Kernels then visit a mask of 0 and -inf as they visit a causal one: they compute only the keys
// between the first and the last that a row sees, and do not read it again where it is 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isentrope/attention.h"

namespace isentrope {

// State of some keys of a row under boolean mask and bias.
enum class KeysSeen : std::uint8_t {
  none,    // hidden
  all,     // seen, with a bias of 0
  biased,  // seen, with any bias
  some,    // seen and hidden
};

// Returns the state of keys whose two parts have these states.
[[nodiscard]] constexpr KeysSeen join(KeysSeen a, KeysSeen b) {
  if ((a == KeysSeen::none) != (b == KeysSeen::none)) return KeysSeen::some;
  return a < b ? b : a;
}

class MaskSummary {
 public:
  MaskSummary(const AttentionInput& input, const AttentionOptions& options,
              const ParallelFor& parallel_for);

  // Returns whether the call has a boolean mask or a bias, and rows. Other functions require it.
  explicit operator bool() const { return !rows_.empty(); }

  // Returns the index of a row. Rows that share a mask have the same.
  [[nodiscard]] std::size_t row(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    return static_cast<std::size_t>(batch * steps_[0] + head * steps_[1] + query * steps_[2]);
  }
  // Returns the keys from the first to the last that the masks leave to the row.
  [[nodiscard]] KeyRange keys(std::size_t row) const { return {rows_[row].begin, rows_[row].end}; }
  // Returns the state of keys first ... last - 1, a part of keys(row). Joins whole groups of keys,
  // so that `some` may be too much.
  [[nodiscard]] KeysSeen state(std::size_t row, std::int64_t first, std::int64_t last) const;
  // Returns how many keys of `range` the masks leave to the row; -1 if that is not known.
  [[nodiscard]] std::int64_t count(std::size_t row, const KeyRange& range) const;
  // Returns whether a key between the first and the last of some row is hidden.
  [[nodiscard]] bool has_gaps() const { return has_gaps_; }

 private:
  struct Row {
    std::int64_t begin = 0, end = 0, seen = 0;
    KeysSeen state = KeysSeen::none;
  };
  class Reader;

  std::array<std::int64_t, 3> extents_{}, steps_{};  // of batch, head and query; 1 and 0 if shared
  std::int64_t groups_ = 0;                          // of a row
  std::vector<Row> rows_;
  std::vector<KeysSeen> states_;  // [row][group]
  bool has_gaps_ = false;
};

}  // namespace isentrope
