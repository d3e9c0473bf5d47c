// The parts of a Mask, each listed once: validation and front ends loop over these lists.
#pragma once

#include <array>
#include <cstdint>

#include "isentrope/mask.h"
#include "src/call/checks.h"

namespace isentrope {

struct MaskNumber {
  const char* name;
  std::int64_t Mask::* member;
  bool negative_is_none;  // otherwise a negative number is an error, and 0 is none
  bool parts_rows;        // whether queries of a batch may see different keys because of it
  bool parts_keys;        // whether it may hide keys of a prefix, which stands without it then

  [[nodiscard]] constexpr bool is_given(const Mask& mask) const {
    return negative_is_none ? mask.*member >= 0 : mask.*member != 0;
  }
};

inline constexpr std::array kMaskNumbers = {
    MaskNumber{"window_left", &Mask::window_left, true, true, true},
    MaskNumber{"window_right", &Mask::window_right, true, true, false},
    MaskNumber{"dilation", &Mask::dilation, false, true, true},
    MaskNumber{"chunk_size", &Mask::chunk_size, false, true, true},
    MaskNumber{"query_offset", &Mask::query_offset, false, false, false},
    MaskNumber{"key_offset", &Mask::key_offset, false, false, false},
    MaskNumber{"sequence_keys", &Mask::sequence_keys, false, false, false},
};

struct MaskList {
  const char* name;
  View<const std::int64_t, 1> Mask::* member;
  bool by_batch;  // [batch]; otherwise where packed documents begin, which parts the rows
};

inline constexpr std::array kMaskLists = {
    MaskList{"key_begin", &Mask::key_begin, true},
    MaskList{"key_end", &Mask::key_end, true},
    MaskList{"prefix_keys", &Mask::prefix_keys, true},
    MaskList{"cu_seqlens_q", &Mask::cu_seqlens_q, false},
    MaskList{"cu_seqlens_k", &Mask::cu_seqlens_k, false},
};

// Of the queries [begin, end) of a batch, the keys at their own positions: row_view().own_key.
void list_own_keys(const Mask& mask, std::int64_t batch, std::int64_t begin, std::int64_t end,
                   std::int64_t queries, std::int64_t keys, double* own_keys);

// Throws Error unless numbers and shapes fit. Reads nothing of the lists, wherever they lie.
void check_mask(const Checks& check, const Mask& mask, std::int64_t batch, std::int64_t keys);

// Throws Error unless the documents are those of so many queries and keys. Reads the lists, which
// lie in the host's memory.
void check_documents(const Checks& check, const Mask& mask, std::int64_t queries,
                     std::int64_t keys);

}  // namespace isentrope
