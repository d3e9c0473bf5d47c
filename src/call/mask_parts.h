// The parts of a Mask, each listed once, because validation and front ends loop over these lists.
#pragma once

#include <array>
#include <cstdint>

#include "isentrope/mask.h"
#include "src/call/checks.h"

namespace isentrope {

struct MaskNumber {
  const char* name;
  std::int64_t Mask::* member;
  bool negative_is_none;  // negative means none; otherwise negative is an error and 0 means none
  bool parts_rows;        // whether queries of a batch may see different keys because of it
  bool parts_keys;        // whether it may hide keys of a prefix, which is then an error

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
  bool by_batch;  // [batch]; otherwise the beginnings of packed documents
};

inline constexpr std::array kMaskLists = {
    MaskList{"key_begin", &Mask::key_begin, true},
    MaskList{"key_end", &Mask::key_end, true},
    MaskList{"prefix_keys", &Mask::prefix_keys, true},
    MaskList{"cu_seqlens_q", &Mask::cu_seqlens_q, false},
    MaskList{"cu_seqlens_k", &Mask::cu_seqlens_k, false},
};

// Lists the keys at the positions of queries [begin, end) of a batch: row_view().own_key.
void list_own_keys(const Mask& mask, std::int64_t batch, std::int64_t begin, std::int64_t end,
                   std::int64_t queries, std::int64_t keys, double* own_keys);

// Throws Error unless numbers and shapes fit. Does not read lists, which may be on a device.
void check_mask(const Checks& check, const Mask& mask, std::int64_t batch, std::int64_t queries,
                std::int64_t keys);

// Throws Error unless starts are 0, ..., rows and never decrease. Reads the list, in host memory.
void check_starts(const Checks& check, const char* name, const View<const std::int64_t, 1>& starts,
                  std::int64_t rows);

// Throws Error unless the documents cover `queries` and `keys`. Reads the lists, in host memory.
void check_documents(const Checks& check, const Mask& mask, std::int64_t queries,
                     std::int64_t keys);

}  // namespace isentrope
