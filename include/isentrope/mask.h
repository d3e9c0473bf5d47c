// Mask: which keys a row may see. Structural masks leave one interval, or every k-th key of one.
#pragma once

#include <cstdint>

#include "isentrope/scale_rule.h"
#include "isentrope/view.h"

namespace isentrope {

// Alignment of the causal diagonal, which matters if there are fewer or more queries than keys.
// With 2 queries and 4 keys (x: seen):
//
//   top_left  x . . .      bottom_right  x x x .
//             x x . .                    x x x x
enum class Causal { none, top_left, bottom_right };

// Structural mask of a call. All parts combine: a row sees the keys that no part masks, and those
// of its prefix.
//
// Query i is at position i + query_offset + keys - queries, so that the last query is aligned with
// the last key, causal or not, as in FlashAttention. It is at i + query_offset with
// Causal::top_left, and with every mask in a part of a longer sequence (sequence_keys > 0), where
// nothing is aligned. Key j is at j + key_offset.
struct Mask {
  Causal causal = Causal::none;

  // A row at position p sees keys p - window_left ... p + window_right; negative: no limit.
  std::int64_t window_left = -1, window_right = -1;

  // A row sees only keys whose distance from its position is a multiple of dilation (Longformer,
  // LongNet). 0 or 1: all.
  std::int64_t dilation = 0;

  // A row sees only the keys of its own chunk of chunk_size positions, counted from the first key
  // that is not padding (Llama 4). 0: no chunks.
  std::int64_t chunk_size = 0;

  // [batch]: the number of keys at the beginning of each sequence, after padding, that all its rows
  // see (PaliGemma's images, GLM's contexts). causal and window_right do not hide them. With packed
  // documents the number holds for each of them. An error with window_left, dilation or chunk_size,
  // because a row's keys would not be one range. Numbers beyond the sequence are clamped.
  View<const std::int64_t, 1> prefix_keys{};

  // Positions of the first query and the first key in the whole sequence, for a shard or a part of
  // a cache, 0 ... 2^60. sequence_keys: the number of keys of the whole sequence, from which rules
  // count n; 0: the sequence ends with this call's keys. With it the rows of Causal::bottom_right
  // must lie within the sequence.
  std::int64_t query_offset = 0, key_offset = 0, sequence_keys = 0;

  // [batch]: the keys that are not padding are begin ... end - 1. Numbers beyond the sequence are
  // clamped. Without data: all.
  View<const std::int64_t, 1> key_begin{}, key_end{};

  // [documents + 1]: the beginnings of packed documents, 0, ..., queries | keys, which never
  // decrease. A row sees its own document; causal and window apply within it. Both or neither.
  View<const std::int64_t, 1> cu_seqlens_q{}, cu_seqlens_k{};
};

// Keys begin, begin + stride, ... below end; empty if end <= begin.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t stride = 1;

  [[nodiscard]] constexpr std::int64_t size() const {
    if (end <= begin) return 0;
    return stride == 1 ? end - begin : 1 + (end - begin - 1) / stride;
  }
  [[nodiscard]] constexpr bool holds(std::int64_t key) const {
    return begin <= key && key < end && (stride == 1 || (key - begin) % stride == 0);
  }
  // Returns the keys of this range from `first` on and below `last`.
  [[nodiscard]] constexpr KeyRange within(std::int64_t first, std::int64_t last) const {
    // The distance from `first` back to the last key of the range before it.
    const std::int64_t past = first > begin && stride > 1 ? (first - begin) % stride : 0;
    return {first > begin ? first + (past > 0 ? stride - past : 0) : begin, end < last ? end : last,
            stride};
  }
  bool operator==(const KeyRange&) const = default;
};

// The effect of a mask on one row.
struct RowView {
  KeyRange keys;     // of this call
  RowLength length;  // lengths that a scale rule may read
  // Key of this call at the row's own position, from which distances count. It may be outside the
  // call, and outside the keys that the row sees.
  std::int64_t own_key = 0;
};

// Returns the keys and lengths of one query under a valid mask, which is not checked here.
// `queries` and `keys` are those of the call.
[[nodiscard]] RowView row_view(const Mask& mask, std::int64_t batch, std::int64_t query,
                               std::int64_t queries, std::int64_t keys);

// Returns the keys from the first to the last that some query of `rows` sees, or would see without
// a dilation; empty if none sees a key.
[[nodiscard]] KeyRange keys_seen_by(const Mask& mask, std::int64_t batch, KeyRange rows,
                                    std::int64_t queries, std::int64_t keys);

// Returns whether row_view() gives all queries of a batch the same keys: one call is enough.
[[nodiscard]] bool rows_are_alike(const Mask& mask);

// Returns whether row_view() is the same for every batch.
[[nodiscard]] bool batches_are_alike(const Mask& mask);

}  // namespace isentrope
