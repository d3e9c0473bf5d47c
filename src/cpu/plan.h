// TilePlan: how a call is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace isentrope {

[[nodiscard]] inline std::int64_t divide_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step;
}

// A work item is one block of rows (a query block in the forward pass, a key block in the backward
// pass) of one key head, and in a forward pass with few queries one split of the keys. It copies or
// packs the other side once, so a block is as long as parallel work allows. A task works on one
// work item after the other where they are small.
// The plan is a function of the shape alone, never of the threads: so are the bits of the result.
// All lengths are counts of rows or keys, not of bytes: types and head dimensions change what an
// item costs, and hardly how it is best cut.
struct TilePlan {
  std::int64_t batches = 0, kv_heads = 0;
  std::int64_t rows = 0;        // of each head
  std::int64_t block_rows = 1;  // of a work item; the last block of a head may be shorter
  std::int64_t blocks = 0;      // of each head
  std::int64_t keys = 0;
  std::int64_t split = 1;  // keys of a work item
  std::int64_t splits = 1;
  std::int64_t items_per_task = 1;

  [[nodiscard]] std::int64_t items() const { return batches * kv_heads * blocks * splits; }
  [[nodiscard]] std::int64_t tasks() const { return divide_up(items(), items_per_task); }
};

struct WorkItem {
  std::int64_t batch, kv_head, block, split;
  std::int64_t begin, end;           // rows
  std::int64_t first_key, last_key;  // of the split, the last exclusive
};

// Splits come first, then blocks, heads and batches: neighbours share their keys while these are in
// the cache.
// Work item `index` of the plan.
[[nodiscard]] inline WorkItem item_of(const TilePlan& plan, std::int64_t index) {
  const std::int64_t split = index % plan.splits, block = index / plan.splits % plan.blocks;
  const std::int64_t kv_head = index / plan.splits / plan.blocks % plan.kv_heads;
  const std::int64_t batch = index / plan.splits / plan.blocks / plan.kv_heads;
  return {.batch = batch,
          .kv_head = kv_head,
          .block = block,
          .split = split,
          .begin = block * plan.block_rows,
          .end = std::min(plan.rows, (block + 1) * plan.block_rows),
          .first_key = split * plan.split,
          .last_key = std::min(plan.keys, (split + 1) * plan.split)};
}

// The rows of a work item of a forward pass are those of `group` query heads, one head after the
// other.
[[nodiscard]] inline std::int64_t head_of(const WorkItem& item, std::int64_t group,
                                          std::size_t row) {
  return item.kv_head * group + static_cast<std::int64_t>(row) / (item.end - item.begin);
}
[[nodiscard]] inline std::int64_t query_of(const WorkItem& item, std::size_t row) {
  return item.begin + static_cast<std::int64_t>(row) % (item.end - item.begin);
}

// Starting a task costs about a microsecond: memory, lists, dispatch. Work items of fewer than 2^18
// scores are worked on together, while 16 tasks remain for threads to share.
[[nodiscard]] inline std::int64_t items_per_task(const TilePlan& plan,
                                                 std::int64_t scores_of_item) {
  const std::int64_t together = (std::int64_t{1} << 18) / std::max<std::int64_t>(scores_of_item, 1);
  return std::max<std::int64_t>(1, std::min(together, plan.items() / 16));
}

// group: query heads of one key head, whose rows share a task's keys. Where these are packed that
// costs a task about 1 / rows of its arithmetic: 1 % at 1024 rows, 4 % at 256, and below 192 there
// is too little work for another thread to be worth it. In between 32 work items are enough for
// threads to share. A call with so few rows that packing is all its work, a decode step, gets its
// parallel work from splits of the keys instead.
[[nodiscard]] inline TilePlan plan_forward(std::int64_t batches, std::int64_t kv_heads,
                                           std::int64_t group, std::int64_t queries,
                                           std::int64_t keys) {
  const std::int64_t heads = std::max<std::int64_t>(batches * kv_heads, 1);
  const std::int64_t wanted = std::clamp(divide_up(queries, divide_up(32, heads)),
                                         divide_up(192, group), divide_up(1024, group));
  const std::int64_t block_rows = std::clamp<std::int64_t>(queries, 1, wanted);
  TilePlan plan{batches,
                kv_heads,
                queries,
                block_rows,
                divide_up(queries, block_rows),
                keys,
                std::max<std::int64_t>(keys, 1),
                1};
  if (queries > 0 && group * queries <= 96 && keys >= 4096) {
    // Splits of 2048 keys and more, in whole blocks of 256: a shorter one costs as much to begin
    // and to merge as it saves.
    plan.split = std::max<std::int64_t>(2048, divide_up(divide_up(keys, 32), 256) * 256);
    plan.splits = divide_up(keys, plan.split);
  }
  // Masks are not looked at: a plan that knew them would have to be made for each batch element.
  plan.items_per_task = items_per_task(plan, group * block_rows * plan.split);
  return plan;
}

// Each key block holds its own sum of dq until all are added in order, so there are at most
// eight: memory stays proportional to queries.
[[nodiscard]] inline TilePlan plan_backward(std::int64_t batches, std::int64_t kv_heads,
                                            std::int64_t group, std::int64_t queries,
                                            std::int64_t keys) {
  const std::int64_t wanted = std::max<std::int64_t>(divide_up(keys, 8), 512);
  const std::int64_t block_rows = std::clamp<std::int64_t>(keys, 1, wanted);
  TilePlan plan{batches,
                kv_heads,
                keys,
                block_rows,
                divide_up(keys, block_rows),
                keys,
                std::max<std::int64_t>(keys, 1),
                1};
  plan.items_per_task = items_per_task(plan, group * queries * block_rows);
  return plan;
}

}  // namespace isentrope
