#include "isentrope/mask.h"

#include <algorithm>
#include <string>

#include "src/call/mask_parts.h"

namespace isentrope {
namespace {

// Clamp for positions: beyond every valid one, and far from overflow.
constexpr std::int64_t kFarthest = std::int64_t{1} << 62;

// Queries and keys of one document, or of the whole call.
struct Span {
  std::int64_t first_query, queries, first_key, keys;
};

Span span_of(const Mask& mask, std::int64_t query, std::int64_t queries, std::int64_t keys) {
  if (!mask.cu_seqlens_q) return {0, queries, 0, keys};
  // Finds the last document that begins at or before the query; empty ones may begin there too.
  std::int64_t low = 0, high = mask.cu_seqlens_q.extents[0] - 1;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (mask.cu_seqlens_q(middle) <= query ? low : high) = middle;
  }
  return {mask.cu_seqlens_q(low), mask.cu_seqlens_q(low + 1) - mask.cu_seqlens_q(low),
          mask.cu_seqlens_k(low), mask.cu_seqlens_k(low + 1) - mask.cu_seqlens_k(low)};
}

// Returns whether the last query is aligned with the last key of the call.
bool meets_last_key(const Mask& mask) {
  return mask.causal != Causal::top_left && mask.sequence_keys == 0;
}

// Returns the keys of a position's chunk. Both count from the first key after padding.
KeyRange chunk_of(std::int64_t position, std::int64_t size) {
  const std::int64_t remainder = position % size;  // negative before the first key
  const std::int64_t begin = position - (remainder < 0 ? remainder + size : remainder);
  return {begin, begin + size};
}

KeyRange intersect(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Returns the keys whose distance from `position` is a multiple of `step`.
KeyRange every_nth(KeyRange keys, std::int64_t position, std::int64_t step) {
  const std::int64_t remainder = (position - keys.begin) % step;
  return {keys.begin + (remainder < 0 ? remainder + step : remainder), keys.end, step};
}

}  // namespace

RowView row_view(const Mask& mask, std::int64_t batch, std::int64_t query, std::int64_t queries,
                 std::int64_t keys) {
  const Span span = span_of(mask, query, queries, keys);
  // Positions count in the whole sequence: key j of the call is at j - first_key + key_offset.
  const std::int64_t shift = meets_last_key(mask) ? span.keys - span.queries : 0;
  const std::int64_t position = query - span.first_query + mask.query_offset + shift;
  const std::int64_t total =
      mask.sequence_keys > 0 ? mask.sequence_keys : mask.key_offset + span.keys;
  KeyRange seen{mask.sequence_keys > 0 ? 0 : mask.key_offset, total};
  // Any value is allowed here, so a window or prefix is clamped to positions that exist.
  const std::int64_t padding =
      mask.key_begin ? std::clamp<std::int64_t>(mask.key_begin(batch), 0, kFarthest) : 0;
  seen.begin = std::max(seen.begin, padding);
  if (mask.key_end) seen.end = std::clamp<std::int64_t>(mask.key_end(batch), 0, total);
  const KeyRange unpadded = seen;
  if (mask.causal != Causal::none) seen.end = std::min(seen.end, position + 1);
  if (mask.window_left >= 0)
    seen.begin = std::max(seen.begin, position - std::min(mask.window_left, kFarthest));
  if (mask.window_right >= 0 && mask.window_right < total - position) {
    seen.end = std::min(seen.end, position + mask.window_right + 1);
  }

  if (mask.prefix_keys) {
    const auto keys_of_prefix =
        std::clamp<std::int64_t>(mask.prefix_keys(batch), 0, kFarthest - padding);
    seen.end = std::max(seen.end, std::min(padding + keys_of_prefix, unpadded.end));
  }
  if (mask.chunk_size > 0) {
    const KeyRange chunk = chunk_of(position - padding, mask.chunk_size);
    seen = intersect(seen, {chunk.begin + padding, chunk.end + padding});
  }

  if (mask.dilation > 1) seen = every_nth(seen, position, mask.dilation);

  const std::int64_t to_call = span.first_key - mask.key_offset;
  const KeyRange here = KeyRange{seen.begin + to_call, seen.end + to_call, seen.stride}.within(
      span.first_key, span.first_key + span.keys);
  return {
      .keys = here.size() > 0 ? here : KeyRange{},
      .length = {.visible = seen.size(), .position = position - padding, .total = unpadded.size()},
      .own_key = position + to_call};
}

// Both ends of a row's keys never decrease with the query: the first and last rows decide.
KeyRange keys_seen_by(const Mask& mask, std::int64_t batch, KeyRange rows, std::int64_t queries,
                      std::int64_t keys) {
  Mask undilated = mask;
  undilated.dilation = 0;
  const auto seen = [&](std::int64_t row) {
    return row_view(undilated, batch, row, queries, keys).keys;
  };
  while (rows.size() > 0 && seen(rows.begin).size() == 0) ++rows.begin;
  while (rows.size() > 0 && seen(rows.end - 1).size() == 0) --rows.end;
  if (rows.size() == 0) return {};
  return {seen(rows.begin).begin, seen(rows.end - 1).end};
}

// Lists a whole sequence at once: for a row of few keys row_view() takes as long as the row.
void list_own_keys(const Mask& mask, std::int64_t batch, std::int64_t begin, std::int64_t end,
                   std::int64_t queries, std::int64_t keys, double* own_keys) {
  for (std::int64_t query = begin; query < end; ++query, ++own_keys) {
    // Within a document positions increase by 1 per query; a new document starts anywhere.
    *own_keys = query == begin || mask.cu_seqlens_q
                    ? static_cast<double>(row_view(mask, batch, query, queries, keys).own_key)
                    : own_keys[-1] + 1;
  }
}

bool rows_are_alike(const Mask& mask) {
  if (mask.causal != Causal::none) return false;
  for (const MaskNumber& number : kMaskNumbers) {
    if (number.parts_rows && number.is_given(mask)) return false;
  }
  for (const MaskList& list : kMaskLists) {
    if (!list.by_batch && mask.*list.member) return false;
  }
  return true;
}

bool batches_are_alike(const Mask& mask) {
  for (const MaskList& list : kMaskLists) {
    if (list.by_batch && mask.*list.member) return false;
  }
  return true;
}

void check_mask(const Checks& check, const Mask& mask, std::int64_t batch, std::int64_t queries,
                std::int64_t keys) {
  for (const MaskNumber& number : kMaskNumbers) {
    const std::int64_t value = mask.*number.member;
    if (number.negative_is_none) continue;
    if (value < 0) check.fail(number.name, "not be negative", std::to_string(value));
    if (value > kMostKeys) check.fail(number.name, "be at most 2^60", std::to_string(value));
  }
  for (const MaskList& list : kMaskLists) {
    if (list.by_batch) check.shape_if_given(list.name, mask.*list.member, Shape<1>{batch});
  }
  if (mask.sequence_keys > 0 && mask.sequence_keys < mask.key_offset + keys) {
    check.fail("sequence_keys",
               "be at least " + std::to_string(mask.key_offset + keys) +
                   ", the number of keys up to the end of this call",
               std::to_string(mask.sequence_keys));
  }
  // Rows so far behind are those of a caller who means an alignment with the call's last key.
  if (mask.causal == Causal::bottom_right && mask.sequence_keys > 0 && !mask.cu_seqlens_q &&
      mask.query_offset + queries > mask.sequence_keys) {
    check.fail("query_offset",
               "leave the " + std::to_string(queries) + " queries within the " +
                   std::to_string(mask.sequence_keys) + " keys of the sequence under bottom_right",
               std::to_string(mask.query_offset));
  }
  for (const MaskNumber& number : kMaskNumbers) {
    if (!mask.prefix_keys || !number.parts_keys || !number.is_given(mask)) continue;
    check.fail(
        "prefix_keys",
        "be absent with " + std::string(number.name) + ", which would leave a gap in a row's keys",
        std::string(number.name) + " = " + std::to_string(mask.*number.member));
  }
  if (static_cast<bool>(mask.cu_seqlens_q) != static_cast<bool>(mask.cu_seqlens_k)) {
    check.fail(
        mask.cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q",
        std::string("be given with ") + (mask.cu_seqlens_q ? "cu_seqlens_q" : "cu_seqlens_k"),
        "none");
  }
  if (mask.cu_seqlens_q.extents != mask.cu_seqlens_k.extents) {
    check.fail("cu_seqlens_k", "have as many documents as cu_seqlens_q",
               text_of(mask.cu_seqlens_k.extents) + " for " + text_of(mask.cu_seqlens_q.extents));
  }
}

void check_starts(const Checks& check, const char* name, const View<const std::int64_t, 1>& starts,
                  std::int64_t rows) {
  const std::int64_t last = std::max<std::int64_t>(starts.extents[0], 0) - 1;
  if (last < 0 || starts(0) != 0 || starts(last) != rows) {
    check.fail(name, "begin with 0 and end with " + std::to_string(rows),
               last < 0 ? "no elements"
                        : std::to_string(starts(0)) + " ... " + std::to_string(starts(last)));
  }
  for (std::int64_t i = 0; i < last; ++i) {
    if (starts(i) > starts(i + 1)) {
      check.fail(name, "never decrease",
                 std::to_string(starts(i)) + " before " + std::to_string(starts(i + 1)));
    }
  }
}

void check_documents(const Checks& check, const Mask& mask, std::int64_t queries,
                     std::int64_t keys) {
  if (!mask.cu_seqlens_q) return;
  check_starts(check, "cu_seqlens_q", mask.cu_seqlens_q, queries);
  check_starts(check, "cu_seqlens_k", mask.cu_seqlens_k, keys);
}

}  // namespace isentrope
