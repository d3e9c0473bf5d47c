// Mask: which keys a row may see. Of a structural mask a row sees one interval of keys, or every
// so many-th key of one.
#pragma once

#include <cstdint>

#include "isentrope/scale_rule.h"
#include "isentrope/view.h"

namespace isentrope {

// Where the causal diagonal lies when there are fewer or more queries than keys. With 2 queries and
// 4 keys (x: seen):
//
//   top_left  x . . .      bottom_right  x x x .
//             x x . .                    x x x x
enum class Causal { none, top_left, bottom_right };

// All parts combine: a row sees the keys that no part masks, and those of its prefix.
//
// Query i lies at position i + query_offset + keys - queries, so that the last query meets the last
// key: FlashAttention's alignment, with causal and without. It lies at i + query_offset with
// Causal::top_left, and in a part of a longer sequence (sequence_keys > 0) without causal. Key j
// lies at j + key_offset.
struct Mask {
  Causal causal = Causal::none;

  // A row at position p sees keys p - window_left ... p + window_right; negative: no limit.
  std::int64_t window_left = -1, window_right = -1;

  // Of all these a row sees the keys whose distance from its position is a multiple of dilation:
  // every so many-th of a window's (Longformer, LongNet). 0 or 1: all.
  std::int64_t dilation = 0;

  // Llama 4's chunks: positions are cut after every chunk_size of them, from the first key that is
  // no padding on, and a row sees the keys of its own chunk. 0: no chunks.
  std::int64_t chunk_size = 0;

  // [batch]: the first so many keys of each sequence that are no padding are seen by all its rows,
  // whatever causal and window_right say (PaliGemma's images, GLM's contexts); of each document,
  // where there are several. Not beside window_left, dilation or chunk_size, with which a row's
  // keys would be no one range.
  View<const std::int64_t, 1> prefix_keys{};

  // Where the first query and the first key lie in the whole sequence, for a shard or a part of a
  // cache. sequence_keys: keys of the whole sequence, from which rules count n; 0: those of this
  // call.
  std::int64_t query_offset = 0, key_offset = 0, sequence_keys = 0;

  // [batch]: the keys that are no padding, begin ... end - 1. Without data: all.
  View<const std::int64_t, 1> key_begin{}, key_end{};

  // [documents + 1]: where the packed documents begin: 0, ..., queries | keys. A row sees its own
  // document; causal and window apply inside it. Both or neither.
  View<const std::int64_t, 1> cu_seqlens_q{}, cu_seqlens_k{};
};

// Keys begin, begin + stride, ... below end; none when end <= begin.
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
  // Those of them from `first` on and below `last`.
  [[nodiscard]] constexpr KeyRange within(std::int64_t first, std::int64_t last) const {
    // How far `first` lies behind the key before it.
    const std::int64_t past = first > begin && stride > 1 ? (first - begin) % stride : 0;
    return {first > begin ? first + (past > 0 ? stride - past : 0) : begin, end < last ? end : last,
            stride};
  }
  bool operator==(const KeyRange&) const = default;
};

// What a mask says of one row.
struct RowView {
  KeyRange keys;     // of this call
  RowLength length;  // what a scale rule may know
  // The key of this call at the row's own position, from which distances count. It may lie outside
  // of the call, and outside of what the row sees.
  std::int64_t own_key = 0;
};

[[nodiscard]] RowView row_view(const Mask& mask, std::int64_t batch, std::int64_t query,
                               std::int64_t queries, std::int64_t keys);

// The keys from the first to the last that some query of `rows` sees, or would see without a
// dilation; none when nobody sees any.
[[nodiscard]] KeyRange keys_seen_by(const Mask& mask, std::int64_t batch, KeyRange rows,
                                    std::int64_t queries, std::int64_t keys);

// Whether row_view() gives all queries of a batch the same keys, and one look is enough.
[[nodiscard]] bool rows_are_alike(const Mask& mask);

// Whether row_view() says the same of every batch.
[[nodiscard]] bool batches_are_alike(const Mask& mask);

}  // namespace isentrope
