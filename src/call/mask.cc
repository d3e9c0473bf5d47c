#include "isentrope/mask.h"

#include <algorithm>

namespace isentrope {
namespace {

// Beyond every position that validation lets through, and far from the ends of the type.
constexpr std::int64_t kFarthest = std::int64_t{1} << 62;

// One document, or the whole call: its queries and keys.
struct Span {
  std::int64_t first_query, queries, first_key, keys;
};

Span span_of(const Mask& mask, std::int64_t query, std::int64_t queries, std::int64_t keys) {
  if (!mask.cu_seqlens_q) return {0, queries, 0, keys};
  // The last document that begins at or before the query: empty ones before it begin there too.
  std::int64_t low = 0, high = mask.cu_seqlens_q.extents[0] - 1;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (mask.cu_seqlens_q(middle) <= query ? low : high) = middle;
  }
  return {mask.cu_seqlens_q(low), mask.cu_seqlens_q(low + 1) - mask.cu_seqlens_q(low),
          mask.cu_seqlens_k(low), mask.cu_seqlens_k(low + 1) - mask.cu_seqlens_k(low)};
}

KeyRange intersect(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

RowView row_view(const Mask& mask, std::int64_t batch, std::int64_t query, std::int64_t queries,
                 std::int64_t keys) {
  const Span span = span_of(mask, query, queries, keys);
  // In positions of the whole sequence, in which key j of the call lies at j - first_key +
  // key_offset.
  const std::int64_t shift = mask.causal == Causal::bottom_right ? span.keys - span.queries : 0;
  const std::int64_t position = query - span.first_query + mask.query_offset + shift;
  const std::int64_t total =
      mask.sequence_keys > 0 ? mask.sequence_keys : mask.key_offset + span.keys;
  KeyRange seen{mask.sequence_keys > 0 ? 0 : mask.key_offset, total};
  // The caller's numbers may be anything: what no position reaches is as good as none.
  const std::int64_t padding =
      mask.key_begin ? std::clamp<std::int64_t>(mask.key_begin(batch), 0, kFarthest) : 0;
  seen.begin = std::max(seen.begin, padding);
  if (mask.key_end) seen.end = std::clamp<std::int64_t>(mask.key_end(batch), 0, total);
  const std::int64_t unpadded = seen.size();
  if (mask.causal != Causal::none) seen.end = std::min(seen.end, position + 1);
  if (mask.window_left >= 0)
    seen.begin = std::max(seen.begin, position - std::min(mask.window_left, kFarthest));
  if (mask.window_right >= 0 && mask.window_right < total - position) {
    seen.end = std::min(seen.end, position + mask.window_right + 1);
  }

  const std::int64_t to_call = span.first_key - mask.key_offset;
  const KeyRange here = intersect({seen.begin + to_call, seen.end + to_call},
                                  {span.first_key, span.first_key + span.keys});
  return {.keys = here.size() > 0 ? here : KeyRange{},
          .length = {.visible = seen.size(), .position = position - padding, .total = unpadded},
          .own_key = position + to_call};
}

}  // namespace isentrope
