// Masks and plans against brute force: every pair of row and key, by the reference's mask.

#include "isentrope/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/cpu/plan.h"
#include "src/cpu/steps/tile_ranges.h"
#include "src/reference/mask.h"
#include "tests/support/list_of.h"

namespace isentrope {
namespace {

using List = std::vector<std::int64_t>;

constexpr std::int64_t kBatches = 2;

struct MaskedCall {
  Mask mask;
  std::int64_t batch, queries, keys;
};

void expect_as_defined(const MaskedCall& d) {
  for (std::int64_t query = 0; query < d.queries; ++query) {
    const RowView row = row_view(d.mask, d.batch, query, d.queries, d.keys);
    const reference::MaskedRow defined(d.mask, d.batch, query, d.queries, d.keys);
    for (std::int64_t key = 0; key < d.keys; ++key) {
      ASSERT_EQ(row.keys.holds(key), defined.sees(key)) << "query " << query << ", key " << key;
      ASSERT_EQ(std::abs(row.own_key - key), defined.distance(key)) << "query " << query;
    }
    ASSERT_LE(0, row.keys.begin);
    ASSERT_LE(row.keys.end, d.keys);
    // If sequence_keys is given, rules count over the whole sequence.
    const RowLength length = defined.length();
    ASSERT_EQ(row.length.visible, length.visible) << "query " << query;
    ASSERT_EQ(row.length.total, length.total) << "query " << query;
    ASSERT_EQ(row.length.position, length.position) << "query " << query;
    // Predicates about all rows must hold for each.
    if (rows_are_alike(d.mask)) {
      ASSERT_EQ(row.keys, row_view(d.mask, d.batch, 0, d.queries, d.keys).keys);
    }
    if (batches_are_alike(d.mask)) {
      const RowView other = row_view(d.mask, 0, query, d.queries, d.keys);
      ASSERT_EQ(row.keys, other.keys);
      ASSERT_EQ(row.length.visible, other.length.visible);
      ASSERT_EQ(row.length.total, other.length.total);
      ASSERT_EQ(row.length.position, other.length.position);
    }
  }
}

void expect_keys_seen(const MaskedCall& d, KeyRange rows) {
  KeyRange want;
  Mask undilated = d.mask;
  undilated.dilation = 0;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const KeyRange keys = row_view(undilated, d.batch, row, d.queries, d.keys).keys;
    if (keys.size() == 0) continue;
    want = want.size() == 0
               ? keys
               : KeyRange{std::min(want.begin, keys.begin), std::max(want.end, keys.end)};
  }
  ASSERT_EQ(keys_seen_by(d.mask, d.batch, rows, d.queries, d.keys), want)
      << "rows " << rows.begin << " to " << rows.end;
}

// Sets a part of the mask of a call with these numbers of queries and keys; false if impossible.
using Choice = std::function<bool(Mask& mask, std::int64_t queries, std::int64_t keys)>;

template <typename Value>
std::vector<Choice> each_of(Value Mask::* part, const std::vector<Value>& values) {
  std::vector<Choice> choices;
  for (const Value value : values) {
    choices.push_back([=](Mask& mask, std::int64_t, std::int64_t) {
      mask.*part = value;
      return true;
    });
  }
  return choices;
}

Choice nothing() {
  return [](Mask&, std::int64_t, std::int64_t) { return true; };
}

// The list outlives the mask.
Choice set_list(View<const std::int64_t, 1> Mask::* part, List values) {
  return [=, kept = std::make_shared<List>(std::move(values))](Mask& mask, std::int64_t,
                                                               std::int64_t) {
    mask.*part = list_of(*kept);
    return true;
  };
}

// Documents end at the cuts, the last one at the end of the call.
Choice set_documents(const List& query_cuts, const List& key_cuts) {
  return [=, starts = std::make_shared<std::array<List, 2>>()](Mask& mask, std::int64_t queries,
                                                               std::int64_t keys) {
    for (std::size_t side = 0; side < 2; ++side) {
      const std::int64_t all = side == 0 ? queries : keys;
      List& list = (*starts)[side] = {0};
      for (const std::int64_t cut : side == 0 ? query_cuts : key_cuts) {
        if (cut > all) return false;
        list.push_back(cut);
      }
      list.push_back(all);
    }
    mask.cu_seqlens_q = list_of((*starts)[0]);
    mask.cu_seqlens_k = list_of((*starts)[1]);
    return true;
  };
}

// Every part of a mask, and ways to set it.
const std::vector<std::vector<Choice>>& parts() {
  static const std::vector<std::vector<Choice>> kParts = {
      each_of(&Mask::causal, {Causal::none, Causal::top_left, Causal::bottom_right}),
      each_of(&Mask::window_left, {-1, 0, 2}),
      each_of(&Mask::window_right, {-1, 0, 1}),
      each_of(&Mask::dilation, {0, 1, 2}),
      each_of(&Mask::chunk_size, {0, 1, 3}),
      {nothing(), set_list(&Mask::prefix_keys, {0, 2}), set_list(&Mask::prefix_keys, {3, -1})},
      each_of(&Mask::query_offset, {0, 2}),
      each_of(&Mask::key_offset, {0, 1}),
      {nothing(),
       [](Mask& mask, std::int64_t, std::int64_t keys) {
         mask.sequence_keys = mask.key_offset + keys + 2;
         return true;
       }},
      {nothing(), set_list(&Mask::key_begin, {0, 1}), set_list(&Mask::key_begin, {4, 2})},
      {nothing(), set_list(&Mask::key_end, {0, 3}), set_list(&Mask::key_end, {9, 2})},
      {nothing(), set_documents({2}, {1}), set_documents({0, 3}, {2, 2}),
       set_documents({1, 1}, {0, 4})},
  };
  return kParts;
}

// Returns whether validation accepts the mask: a prefix excludes parts that hide later keys.
bool is_one_interval(const Mask& mask) {
  return !mask.prefix_keys || (mask.window_left < 0 && mask.chunk_size == 0 && mask.dilation == 0);
}

// Calls check(mask) for every combination of the parts from `part` on.
template <typename Check>
void for_each_mask(const Mask& mask, std::int64_t queries, std::int64_t keys, const Check& check,
                   std::size_t part = 0) {
  if (part == parts().size()) return is_one_interval(mask) ? check(mask) : void();
  for (const Choice& choice : parts()[part]) {
    Mask with = mask;
    if (choice(with, queries, keys)) for_each_mask(with, queries, keys, check, part + 1);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Mask, EveryRowSeesWhatTheDefinitionSays) {
  std::int64_t masks = 0;
  for (std::int64_t queries = 1; queries <= 5; ++queries) {
    for (std::int64_t keys = 0; keys <= 6; ++keys) {
      for_each_mask({}, queries, keys, [&](const Mask& mask) {
        ++masks;
        for (std::int64_t batch = 0; batch < kBatches; ++batch) {
          const MaskedCall call{mask, batch, queries, keys};
          expect_as_defined(call);
          for (const KeyRange rows : {KeyRange{0, queries}, {0, queries - 1}, {1, queries}, {1, 3}})
            expect_keys_seen(call, {rows.begin, std::min(rows.end, queries)});
        }
      });
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(masks, 50'000);
}

TEST(Mask, OneLookIsEnoughWhereNothingPartsTheRows) {
  const List ends = {3, 4};
  EXPECT_TRUE(rows_are_alike({}));
  EXPECT_TRUE(batches_are_alike({.causal = Causal::top_left, .window_left = 1}));
  EXPECT_TRUE(rows_are_alike({.query_offset = 3, .sequence_keys = 9, .key_end = list_of(ends)}));
}

// Returns how often each (row, key) of each key head is in a work item.
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

TEST(TileRanges, HoldEverySeenKeyOfTheBlockAndNoOther) {
  constexpr std::size_t kRows = 3;
  constexpr std::int64_t kFirst = 10, kBlock = 4;
  std::vector<KeyRange> ranges = {{0, 0},   {0, 5},   {9, 12},  {10, 14},
                                  {11, 13}, {12, 40}, {14, 20}, {3, 30}};
  for (const std::int64_t stride : {1, 2, 3, 7}) {
    for (KeyRange& range : ranges) range.stride = stride;
    for (const KeyRange& a : ranges) {
      for (const KeyRange& b : ranges) {
        for (const KeyRange& c : ranges) {
          const KeyRange rows[kRows] = {a, b, c};
          const TileRanges<kRows> tile(kRows, kFirst, kBlock,
                                       [&](std::size_t r) { return rows[r]; });
          bool some = false, all = true;
          std::size_t counts[kRows] = {};
          for (std::size_t key = 0; key < kBlock; ++key) {
            const std::int64_t at = kFirst + static_cast<std::int64_t>(key);
            for (std::size_t r = 0; r < kRows; ++r) {
              const bool sees = rows[r].holds(at);
              ASSERT_EQ(tile.sees(r, key), sees);
              counts[r] += sees;
              some |= sees;
              ASSERT_TRUE(!sees || (tile.first <= key && key < tile.last));
              if (tile.first <= key && key < tile.last) all &= sees;
            }
          }
          for (std::size_t r = 0; r < kRows; ++r) ASSERT_EQ(tile.count(r), counts[r]);
          ASSERT_EQ(tile.empty(), !some);
          ASSERT_TRUE(!some || stride > 1 || tile.ragged == !all);
        }
      }
    }
  }
}

}  // namespace
}  // namespace isentrope
