// Decisions of calls on a device.

#include "src/call/device_plan.h"

#include <gtest/gtest.h>

namespace isentrope {
namespace {

constexpr std::int64_t kPlace = 0;
const View<const std::int64_t, 1> kList{&kPlace, {1}, {1}};
const float kNumber = 0;

AttentionInput call(std::int64_t heads, std::int64_t kv_heads, std::int64_t queries) {
  AttentionInput in;
  in.q.extents = {1, heads, queries, 64};
  in.k.extents = {1, kv_heads, 100, 64};
  return in;
}

DevicePlan plan_of(const AttentionOptions& options, std::int64_t queries = 100) {
  return device_plan(call(8, 8, queries), options);
}

DevicePlan plan_of(const Mask& mask, std::int64_t queries = 100) {
  return plan_of(AttentionOptions{.mask = mask}, queries);
}

TEST(DevicePlan, RowsOfAKeyHeadAreInOneTileIfTheyAreFew) {
  const DevicePlan few = device_plan(call(32, 8, 4), {}), many = device_plan(call(32, 8, 5), {});
  EXPECT_TRUE(few.packed);
  EXPECT_EQ(few.lanes, 8);
  EXPECT_EQ(few.length, 16);
  EXPECT_FALSE(many.packed);
  EXPECT_EQ(many.lanes, 32);
  EXPECT_EQ(many.length, 5);
  AttentionInput paged = call(32, 8, 5);
  const std::int32_t page = 0;
  paged.pages.block_table.data = &page;
  EXPECT_TRUE(device_plan(paged, {}).packed);
}

TEST(DevicePlan, ACallMayHaveNoHeads) {
  const DevicePlan plan = device_plan(call(0, 0, 4), {});
  EXPECT_EQ(plan.lanes, 0);
  EXPECT_EQ(plan.length, 0);
}

TEST(DevicePlan, ACallWithoutAMaskIsNotChecked) {
  const DevicePlan plan = plan_of(Mask{});
  EXPECT_FALSE(plan.masked || plan.rows_differ || plan.keys_differ);
  EXPECT_TRUE(plan.moments_checked);
  EXPECT_FALSE(plan_of(Mask{}, 1).moments_checked);
  EXPECT_FALSE(plan.by_batch || plan.by_head || plan.own_is_last);
  EXPECT_EQ(plan.dilation, 1);
}

TEST(DevicePlan, RangesOfKeysDifferBetweenRows) {
  for (const Mask& mask : {Mask{.causal = Causal::top_left}, Mask{.window_left = 3},
                           Mask{.window_right = 3}, Mask{.chunk_size = 8}}) {
    EXPECT_TRUE(plan_of(mask).rows_differ && plan_of(mask).keys_differ);
    EXPECT_FALSE(plan_of(mask, 1).rows_differ);
    EXPECT_TRUE(plan_of(mask, 1).keys_differ);
    EXPECT_FALSE(plan_of(mask).masked);
  }
  EXPECT_TRUE(plan_of({.cu_seqlens_q = kList, .cu_seqlens_k = kList}, 1).rows_differ);
}

TEST(DevicePlan, PaddingHidesKeysFromAllRowsOfASequence) {
  for (const Mask& mask : {Mask{.key_begin = kList}, Mask{.key_end = kList}}) {
    EXPECT_FALSE(plan_of(mask).rows_differ);
    EXPECT_TRUE(plan_of(mask).keys_differ && plan_of(mask).by_batch);
    EXPECT_FALSE(plan_of(mask).by_head);
  }
}

TEST(DevicePlan, AnyKeyMayBeHidden) {
  const std::uint8_t seen = 1;
  for (const AttentionOptions& options :
       {AttentionOptions{.mask = {.dilation = 2}},
        AttentionOptions{.attn_mask = {&seen, {1, 8, 1, 100}, {}}},
        AttentionOptions{.bias = {&kNumber, {1, 8, 1, 100}, {}}}}) {
    const DevicePlan plan = plan_of(options, 1);
    EXPECT_TRUE(plan.masked && plan.rows_differ && plan.keys_differ && plan.moments_checked);
  }
  EXPECT_FALSE(plan_of(Mask{.dilation = 1}).masked);
  EXPECT_EQ(plan_of(Mask{.dilation = std::int64_t{1} << 40}).dilation, (std::int64_t{1} << 31) - 1);
}

TEST(DevicePlan, ScalesDifferByRow) {
  EXPECT_TRUE(plan_of(AttentionOptions{.lambda = {&kNumber, {1, 8, 1}, {}}}).by_head);
  EXPECT_TRUE(plan_of(AttentionOptions{.lambda = {&kNumber, {1, 8, 1}, {}}}).by_batch);
  EXPECT_FALSE(plan_of(AttentionOptions{.bias = {&kNumber, {1, 8, 1, 100}, {}}}).by_batch);
}

TEST(DevicePlan, OwnKeysAreLast) {
  EXPECT_TRUE(plan_of({.causal = Causal::bottom_right}).own_is_last);
  EXPECT_TRUE(plan_of({.window_right = 0}).own_is_last);
  EXPECT_FALSE(plan_of({.window_right = 1}).own_is_last);
  EXPECT_FALSE(plan_of({.causal = Causal::top_left, .prefix_keys = kList}).own_is_last);
}

TEST(SharesOf, FillWholeWaves) {
  EXPECT_EQ(shares_of(264, 1, 1 << 20, 128), 116);  // at most 128, of which 116 are nine tenths
  EXPECT_EQ(shares_of(264, 132, 1 << 20, 128), 2);
  EXPECT_EQ(shares_of(264, 100, 1 << 20, 128), 5);  // 500 of 528 programs
}

TEST(SharesOf, AreAtLeastFourTiles) {
  EXPECT_EQ(shares_of(264, 1, 511, 64), 1);
  EXPECT_EQ(shares_of(264, 1, 512, 64), 2);
}

TEST(SharesOf, CallsThatFillAWaveAreNotSplit) {
  EXPECT_EQ(shares_of(264, 264, 1 << 20, 128), 1);
  EXPECT_EQ(shares_of(264, 0, 1 << 20, 128), 1);
}

}  // namespace
}  // namespace isentrope
