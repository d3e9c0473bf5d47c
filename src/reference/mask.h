// Decides pair by pair whether a query sees a key, following mask.h.
#pragma once

#include <cstdint>

#include "isentrope/mask.h"

namespace isentrope::reference {

// Mask of one row of a call with `queries` queries and `keys` keys. It shares no code with
// row_view(), which it is used to test.
class MaskedRow {
 public:
  MaskedRow(const Mask& mask, std::int64_t batch, std::int64_t query, std::int64_t queries,
            std::int64_t keys);

  [[nodiscard]] bool sees(std::int64_t key) const;
  // Returns the distance in keys from the row's position to that of `key`.
  [[nodiscard]] std::int64_t distance(std::int64_t key) const;
  // Counts the row's length key by key over the whole sequence.
  [[nodiscard]] RowLength length() const;

 private:
  [[nodiscard]] std::int64_t place_of(std::int64_t key) const;
  // Both take positions in the whole sequence.
  [[nodiscard]] bool is_padding(std::int64_t at) const;
  [[nodiscard]] bool sees_place(std::int64_t at) const;
  [[nodiscard]] std::int64_t chunk_of(std::int64_t at) const;

  const Mask& mask_;
  std::int64_t batch_;
  std::int64_t first_query_ = 0, queries_, first_key_ = 0, keys_;  // of the row's document
  std::int64_t position_;  // of the row, in the whole sequence
  std::int64_t padding_;   // keys of padding before the first other key
};

}  // namespace isentrope::reference
