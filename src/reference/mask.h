// Who sees whom, asked pair by pair, as mask.h says it.
#pragma once

#include <cstdint>

#include "isentrope/mask.h"

namespace isentrope::reference {

// What a mask says of one row of a call of so many queries and keys. Nothing of it is shared with
// row_view(), which finds a row's keys without looking at each: so this judges that.
class MaskedRow {
 public:
  MaskedRow(const Mask& mask, std::int64_t batch, std::int64_t query, std::int64_t queries,
            std::int64_t keys);

  // Whether the row sees key `key` of the call.
  [[nodiscard]] bool sees(std::int64_t key) const;
  // From the row's position to that key's, in keys.
  [[nodiscard]] std::int64_t distance(std::int64_t key) const;
  // Counted key by key over the whole sequence.
  [[nodiscard]] RowLength length() const;

 private:
  [[nodiscard]] std::int64_t place_of(std::int64_t key) const;
  // These take places in the whole sequence.
  [[nodiscard]] bool is_padding(std::int64_t at) const;
  [[nodiscard]] bool sees_place(std::int64_t at) const;
  [[nodiscard]] std::int64_t chunk_of(std::int64_t at) const;

  const Mask& mask_;
  std::int64_t batch_;
  std::int64_t first_query_ = 0, queries_, first_key_ = 0, keys_;  // of the row's document
  std::int64_t position_;  // of the row, in the whole sequence
  std::int64_t padding_;   // keys before the first that is none
};

}  // namespace isentrope::reference
