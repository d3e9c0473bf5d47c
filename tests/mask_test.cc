// Masks and plans against brute force: the definition of each, asked for every pair of row and key.

#include "isentrope/mask.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/cpu/plan.h"
#include "src/cpu/steps/tile_ranges.h"

namespace isentrope {
namespace {

View<const std::int64_t, 1> list(const std::vector<std::int64_t>& values) {
  return contiguous_view<const std::int64_t, 1>(values.data(),
                                                {static_cast<std::int64_t>(values.size())});
}

// One mask over one call, read as its documentation reads.
struct Definition {
  Mask mask;
  std::int64_t queries, keys;

  // First query, end of queries, first key, end of keys of the row's document.
  [[nodiscard]] std::array<std::int64_t, 4> document(std::int64_t query) const {
    if (!mask.cu_seqlens_q) return {0, queries, 0, keys};
    for (std::int64_t d = 0;; ++d) {
      if (mask.cu_seqlens_q(d) <= query && query < mask.cu_seqlens_q(d + 1)) {
        return {mask.cu_seqlens_q(d), mask.cu_seqlens_q(d + 1), mask.cu_seqlens_k(d),
                mask.cu_seqlens_k(d + 1)};
      }
    }
  }
  [[nodiscard]] std::int64_t position(std::int64_t query) const {
    const auto [q0, q1, k0, k1] = document(query);
    const bool bottom_right = mask.causal == Causal::bottom_right;
    return query - q0 + mask.query_offset + (bottom_right ? (k1 - k0) - (q1 - q0) : 0);
  }
  [[nodiscard]] bool is_padding(std::int64_t key_position) const {
    return (mask.key_begin && key_position < mask.key_begin(0)) ||
           (mask.key_end && key_position >= mask.key_end(0));
  }
  [[nodiscard]] bool sees(std::int64_t query, std::int64_t key_position) const {
    const std::int64_t at = position(query);
    if (is_padding(key_position)) return false;
    if (mask.causal != Causal::none && key_position > at) return false;
    if (mask.window_left >= 0 && key_position < at - mask.window_left) return false;
    return !(mask.window_right >= 0 && key_position > at + mask.window_right);
  }
};

void expect_as_defined(const Definition& d) {
  for (std::int64_t query = 0; query < d.queries; ++query) {
    const RowView row = row_view(d.mask, 0, query, d.queries, d.keys);
    const auto [q0, q1, k0, k1] = d.document(query);
    for (std::int64_t key = 0; key < d.keys; ++key) {
      const bool sees = k0 <= key && key < k1 && d.sees(query, key - k0 + d.mask.key_offset);
      ASSERT_EQ(row.keys.begin <= key && key < row.keys.end, sees)
          << "query " << query << ", key " << key;
    }
    ASSERT_LE(0, row.keys.begin);
    ASSERT_LE(row.keys.end, d.keys);
    // Rules count over the whole sequence where its length is given.
    const bool whole = d.mask.sequence_keys > 0;
    const std::int64_t first = whole ? 0 : d.mask.key_offset;
    const std::int64_t last = whole ? d.mask.sequence_keys : d.mask.key_offset + (k1 - k0);
    std::int64_t visible = 0, total = 0;
    for (std::int64_t at = first; at < last; ++at) {
      visible += d.sees(query, at);
      total += !d.is_padding(at);
    }
    ASSERT_EQ(row.length.visible, visible) << "query " << query;
    ASSERT_EQ(row.own_key, d.position(query) - d.mask.key_offset + k0) << "query " << query;
    ASSERT_EQ(row.length.total, total) << "query " << query;
    ASSERT_EQ(row.length.position,
              d.position(query) - (d.mask.key_begin ? d.mask.key_begin(0) : 0));
  }
}

// Calls check(definition) for every mask of a small call, documents aside.
template <typename Check>
void for_each_mask(std::int64_t queries, std::int64_t keys, const Check& check) {
  static const std::vector<std::int64_t> kBegins[] = {{}, {0}, {1}, {3}},
                                         kEnds[] = {{}, {0}, {2}, {9}};
  for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
    for (const std::int64_t left : {-1, 0, 1, 3}) {
      for (const std::int64_t right : {-1, 0, 2}) {
        for (const auto& [query_offset, key_offset] : {std::pair{0, 0}, {2, 0}, {0, 1}, {3, 2}}) {
          for (const auto& begin : kBegins) {
            for (const auto& end : kEnds) {
              Mask mask{.causal = causal,
                        .window_left = left,
                        .window_right = right,
                        .query_offset = query_offset,
                        .key_offset = key_offset};
              if (!begin.empty()) mask.key_begin = list(begin);
              if (!end.empty()) mask.key_end = list(end);
              check(Definition{mask, queries, keys});
            }
          }
        }
      }
    }
  }
}

TEST(Mask, EveryRowSeesWhatTheDefinitionSays) {
  for (std::int64_t queries = 1; queries <= 5; ++queries) {
    for (std::int64_t keys = 0; keys <= 5; ++keys) {
      for_each_mask(queries, keys, expect_as_defined);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Mask, AShardCountsTheKeysOfTheWholeSequence) {
  for_each_mask(3, 4, [](Definition d) {
    d.mask.sequence_keys = d.mask.key_offset + d.keys + 2;
    expect_as_defined(d);
  });
}

TEST(Mask, DocumentsDoNotSeeEachOther) {
  const std::vector<std::int64_t> query_cuts[] = {
      {0, 5}, {0, 2, 5}, {0, 0, 3, 5}, {0, 1, 1, 5}, {0, 5, 5}};
  const std::vector<std::int64_t> key_cuts[] = {
      {0, 6}, {0, 2, 6}, {0, 3, 3, 6}, {0, 0, 5, 6}, {0, 6, 6}};
  for (const auto& queries : query_cuts) {
    for (const auto& keys : key_cuts) {
      if (queries.size() != keys.size()) continue;
      for_each_mask(5, 6, [&](Definition d) {
        d.mask.cu_seqlens_q = list(queries);
        d.mask.cu_seqlens_k = list(keys);
        expect_as_defined(d);
      });
    }
  }
}

// How often each (row, key) of each key head lies in a work item.
std::vector<int> visits_of(const TilePlan& plan) {
  std::vector<int> visits(
      static_cast<std::size_t>(plan.batches * plan.kv_heads * plan.rows * plan.keys));
  for (std::int64_t index = 0; index < plan.items(); ++index) {
    const WorkItem item = item_of(plan, index);
    for (std::int64_t row = item.begin; row < item.end; ++row) {
      for (std::int64_t key = item.first_key; key < item.last_key; ++key) {
        const std::int64_t head = item.batch * plan.kv_heads + item.kv_head;
        ++visits[static_cast<std::size_t>((head * plan.rows + row) * plan.keys + key)];
      }
    }
  }
  return visits;
}

TEST(TilePlan, EveryPairOfRowAndKeyIsVisitedOnce) {
  for (const std::int64_t group : {1, 3, 16, 200}) {
    for (const std::int64_t queries : {0, 1, 2, 96, 97, 191, 192, 193, 1025, 1537}) {
      for (const std::int64_t keys : {0, 1, 255, 513}) {
        for (const int visits : visits_of(plan_forward(2, 2, group, queries, keys)))
          ASSERT_EQ(visits, 1);
      }
    }
    for (const std::int64_t keys : {4095, 4096, 4097, 6144, 65537}) {
      for (const int visits : visits_of(plan_forward(1, 2, group, 1, keys))) ASSERT_EQ(visits, 1);
    }
  }
  // Backward: the plan's rows are keys, each against all queries.
  for (const std::int64_t keys : {0, 1, 511, 512, 513, 4095, 4097, 9000}) {
    TilePlan plan = plan_backward(2, 3, 1, 1, keys);
    plan.keys = plan.split = 1;
    for (const int visits : visits_of(plan)) ASSERT_EQ(visits, 1);
    EXPECT_LE(plan.blocks, 8);
  }
}

TEST(TileRanges, HoldEveryAdmittedKeyOfTheBlockAndNoOther) {
  constexpr std::size_t kRows = 3;
  constexpr std::int64_t kFirst = 10, kBlock = 4;
  const std::vector<KeyRange> ranges = {{0, 0},   {0, 5},   {9, 12},  {10, 14},
                                        {11, 13}, {12, 40}, {14, 20}, {3, 30}};
  for (const KeyRange& a : ranges) {
    for (const KeyRange& b : ranges) {
      for (const KeyRange& c : ranges) {
        const KeyRange rows[kRows] = {a, b, c};
        const TileRanges<kRows> tile(kRows, kFirst, kBlock, [&](std::size_t r) { return rows[r]; });
        bool some = false, all = true;
        for (std::size_t key = 0; key < kBlock; ++key) {
          const std::int64_t at = kFirst + static_cast<std::int64_t>(key);
          for (std::size_t r = 0; r < kRows; ++r) {
            const bool sees = rows[r].begin <= at && at < rows[r].end;
            ASSERT_EQ(tile.sees(r, key), sees);
            some |= sees;
            ASSERT_TRUE(!sees || (tile.first <= key && key < tile.last));
            if (tile.first <= key && key < tile.last) all &= sees;
          }
        }
        ASSERT_EQ(tile.empty(), !some);
        ASSERT_TRUE(!some || tile.ragged == !all);
      }
    }
  }
}

}  // namespace
}  // namespace isentrope
