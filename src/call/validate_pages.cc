// Validation of paged caches.

#include <string>

#include "src/call/mask_parts.h"
#include "src/call/sequences.h"
#include "src/call/validate.h"

namespace isentrope {
namespace {

std::int64_t pages_for(std::int64_t keys, std::int64_t page_size) {
  return keys / page_size + (keys % page_size > 0);
}

// Sequences with lengths of their own go with neither dropout, documents nor a common length.
void check_options_of_sequences(const Checks& check, const AttentionOptions& options) {
  if (options.dropout_p > 0) {
    check.fail("dropout_p", "be 0 with seqused_k and with cu_seq_q",
               std::to_string(options.dropout_p));
  }
  if (options.mask.sequence_keys > 0) {
    check.fail("sequence_keys", "be 0 with seqused_k and with cu_seq_q",
               std::to_string(options.mask.sequence_keys));
  }
  if (options.mask.cu_seqlens_q) {
    check.fail("cu_seqlens_q", "be absent with seqused_k and with cu_seq_q", "one");
  }
}

void check_sequence_lengths(const Checks& check, const AttentionInput& in) {
  for (std::int64_t s = 0; in.pages.seqused_k && s < in.sequences(); ++s) {
    const std::int64_t keys = in.pages.seqused_k(s);
    if (keys < 0 || keys > in.keys()) {
      check.fail("seqused_k",
                 "be at least 0 and at most " + std::to_string(in.keys()) +
                     ", the keys that a sequence has pages for",
                 std::to_string(keys));
    }
  }
  if (in.pages.cu_seq_q) check_starts(check, "cu_seq_q", in.pages.cu_seq_q, in.q.extents[2]);
}

}  // namespace

void check_pages(const Checks& check, const AttentionInput& in, const AttentionOptions& options) {
  if (!in.pages && in.pages.keys != 0) {
    check.fail("pages.keys", "be 0 without block_table", std::to_string(in.pages.keys));
  }
  if (!in.pages && in.pages.has_sequences()) {
    check.fail("block_table", "be given with seqused_k and with cu_seq_q", "none");
  }
  if (!in.pages) return;
  const std::int64_t page_size = in.k.extents[2];
  if (page_size < 1) check.fail("k", "have pages of at least one key", text_of(in.k.extents));
  const std::int64_t needed = pages_for(in.pages.keys, page_size), sequences = in.sequences();
  const auto& table = in.pages.block_table;
  if (in.pages.keys < 0 || in.pages.keys > kMostKeys || table.extents[0] != sequences ||
      table.extents[1] < needed) {
    check.fail("block_table", "have a row for each batch and a column for each page of keys",
               text_of(table.extents) + " for " + std::to_string(in.pages.keys) + " keys");
  }
  check.shape_if_given("seqused_k", in.pages.seqused_k, Shape<1>{sequences});
  check.shape_if_given("cu_seq_q", in.pages.cu_seq_q, Shape<1>{sequences + 1});
  if (in.pages.cu_seq_q && in.q.extents[0] != 1) {
    check.fail("q", "have a batch of 1 with cu_seq_q", text_of(in.q.extents));
  }
  if (in.pages.has_sequences()) check_options_of_sequences(check, options);
}

void check_page_contents(const Checks& check, const AttentionInput& in) {
  if (!in.pages) return;
  check_sequence_lengths(check, in);
  const std::int64_t page_size = in.k.extents[2], pages = in.k.extents[0];
  const auto& table = in.pages.block_table;
  for (std::int64_t s = 0; s < table.extents[0]; ++s) {
    const std::int64_t needed = pages_for(keys_of(in, s), page_size);
    for (std::int64_t page = 0; page < needed; ++page) {
      const std::int64_t index = table(s, page);
      if (index < 0 || index >= pages) {
        check.fail("block_table", "hold page numbers below " + std::to_string(pages),
                   std::to_string(index));
      }
    }
  }
}

}  // namespace isentrope
