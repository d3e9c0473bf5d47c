#include "src/reference/mask.h"

#include <algorithm>
#include <cstdlib>

namespace isentrope::reference {

MaskedRow::MaskedRow(const Mask& mask, std::int64_t batch, std::int64_t query, std::int64_t queries,
                     std::int64_t keys)
    : mask_(mask), batch_(batch), queries_(queries), keys_(keys) {
  for (std::int64_t d = 0; mask.cu_seqlens_q && d + 1 < mask.cu_seqlens_q.extents[0]; ++d) {
    if (query < mask.cu_seqlens_q(d) || query >= mask.cu_seqlens_q(d + 1)) continue;
    first_query_ = mask.cu_seqlens_q(d);
    queries_ = mask.cu_seqlens_q(d + 1) - first_query_;
    first_key_ = mask.cu_seqlens_k(d);
    keys_ = mask.cu_seqlens_k(d + 1) - first_key_;
  }
  const bool is_part = mask.sequence_keys > 0;
  const bool last_meets_last = !is_part && mask.causal != Causal::top_left;
  position_ = query - first_query_ + mask.query_offset + (last_meets_last ? keys_ - queries_ : 0);
  padding_ = mask.key_begin ? std::max<std::int64_t>(mask.key_begin(batch), 0) : 0;
}

bool MaskedRow::sees(std::int64_t key) const {
  const bool own_document = first_key_ <= key && key < first_key_ + keys_;
  return own_document && sees_place(place_of(key));
}

std::int64_t MaskedRow::distance(std::int64_t key) const {
  return std::abs(position_ - place_of(key));
}

RowLength MaskedRow::length() const {
  const bool is_part = mask_.sequence_keys > 0;
  const std::int64_t begin = is_part ? 0 : mask_.key_offset;
  const std::int64_t end = is_part ? mask_.sequence_keys : mask_.key_offset + keys_;
  RowLength length{.visible = 0, .position = position_ - padding_, .total = 0};
  for (std::int64_t at = begin; at < end; ++at) {
    length.visible += sees_place(at);
    length.total += !is_padding(at);
  }
  return length;
}

std::int64_t MaskedRow::place_of(std::int64_t key) const {
  return key - first_key_ + mask_.key_offset;
}

bool MaskedRow::is_padding(std::int64_t at) const {
  return at < padding_ || (mask_.key_end && at >= mask_.key_end(batch_));
}

bool MaskedRow::sees_place(std::int64_t at) const {
  if (is_padding(at)) return false;
  if (mask_.prefix_keys && at - padding_ < mask_.prefix_keys(batch_)) return true;
  if (mask_.causal != Causal::none && at > position_) return false;
  if (mask_.window_left >= 0 && position_ - at > mask_.window_left) return false;
  if (mask_.window_right >= 0 && at - position_ > mask_.window_right) return false;
  if (mask_.dilation > 1 && (position_ - at) % mask_.dilation != 0) return false;
  return mask_.chunk_size == 0 || chunk_of(at) == chunk_of(position_);
}

// Rounds the quotient down, because a row may be before the first key.
std::int64_t MaskedRow::chunk_of(std::int64_t at) const {
  const std::int64_t size = mask_.chunk_size, from = at - padding_;
  return from >= 0 ? from / size : -((size - 1 - from) / size);
}

}  // namespace isentrope::reference
