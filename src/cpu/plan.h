// TilePlan: cuts a call into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace isentrope {

[[nodiscard]] inline std::int64_t divide_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step;
}

// A work item is one block of rows (a query block in the forward pass, a key block in the backward
// pass) of one key head; with few queries also one split of the keys. It copies or packs the other
// operand once, so blocks are as long as parallelism allows. A task runs several small items.
// The plan, and so the bits of results, depends on the shape alone, never on the threads. Lengths
// count rows or keys: types and head dimensions hardly change the best plan.
struct TilePlan {
  std::int64_t batches = 0, kv_heads = 0;
  std::int64_t rows = 0;        // of each head
  std::int64_t block_rows = 1;  // of a work item; the last block of a head may be shorter
  std::int64_t blocks = 0;      // of each head
  std::int64_t keys = 0;
  std::int64_t split = 1;  // keys of a work item
  std::int64_t splits = 1;
  std::int64_t item_scores = 0;  // of a work item, at most
  std::int64_t items_per_task = 1;

  [[nodiscard]] std::int64_t items() const { return batches * kv_heads * blocks * splits; }
  [[nodiscard]] std::int64_t tasks() const { return divide_up(items(), items_per_task); }
};

struct WorkItem {
  std::int64_t batch, kv_head, block, split;
  std::int64_t begin, end;           // rows
  std::int64_t first_key, last_key;  // of the split; last_key is exclusive
};

// Returns item `index`. Blocks vary fastest, then heads, splits, batches: neighbours share caches.
// Heads of one split are neighbours, because the rows of all heads may alternate in memory.
[[nodiscard]] inline WorkItem item_of(const TilePlan& plan, std::int64_t index) {
  const std::int64_t block = index % plan.blocks;
  const std::int64_t kv_head = index / plan.blocks % plan.kv_heads;
  const std::int64_t split = index / plan.blocks / plan.kv_heads % plan.splits;
  const std::int64_t batch = index / plan.blocks / plan.kv_heads / plan.splits;
  return {.batch = batch,
          .kv_head = kv_head,
          .block = block,
          .split = split,
          .begin = block * plan.block_rows,
          .end = std::min(plan.rows, (block + 1) * plan.block_rows),
          .first_key = split * plan.split,
          .last_key = std::min(plan.keys, (split + 1) * plan.split)};
}

// Rows of a forward work item are those of `group` query heads, one head after the other.
[[nodiscard]] inline std::int64_t head_of(const WorkItem& item, std::int64_t group,
                                          std::size_t row) {
  return item.kv_head * group + static_cast<std::int64_t>(row) / (item.end - item.begin);
}
[[nodiscard]] inline std::int64_t query_of(const WorkItem& item, std::size_t row) {
  return item.begin + static_cast<std::int64_t>(row) % (item.end - item.begin);
}

// Returns the number of work items of a task. Starting a task costs about a microsecond (memory,
// lists, dispatch). Items of fewer than 2^18 scores are grouped while 16 tasks remain.
// `items` counts those of the call.
[[nodiscard]] inline std::int64_t items_per_task(const TilePlan& plan, std::int64_t items) {
  const std::int64_t together =
      (std::int64_t{1} << 18) / std::max<std::int64_t>(plan.item_scores, 1);
  return std::max<std::int64_t>(1, std::min(together, items / 16));
}

// Returns a plan of blocks of rows, whose keys are not split.
[[nodiscard]] inline TilePlan plan_blocks(std::int64_t batches, std::int64_t kv_heads,
                                          std::int64_t rows, std::int64_t block_rows,
                                          std::int64_t keys) {
  return {batches,
          kv_heads,
          rows,
          block_rows,
          divide_up(rows, block_rows),
          keys,
          std::max<std::int64_t>(keys, 1),
          1};
}

// Plans the forward pass; the rows of `group` query heads share a task's keys. Packing keys costs
// about 1 / rows of a task's arithmetic: 1 % at 1024 rows, 4 % at 256. Below 192 rows another
// thread does not pay; in between, 32 items keep threads busy. Decode steps split keys instead,
// unless the pass has no merge of splits.
[[nodiscard]] inline TilePlan plan_forward(std::int64_t batches, std::int64_t kv_heads,
                                           std::int64_t group, std::int64_t queries,
                                           std::int64_t keys, bool splits = true) {
  const std::int64_t heads = std::max<std::int64_t>(batches * kv_heads, 1);
  const std::int64_t wanted = std::clamp(divide_up(queries, divide_up(32, heads)),
                                         divide_up(192, group), divide_up(1024, group));
  const std::int64_t block_rows = std::clamp<std::int64_t>(queries, 1, wanted);
  TilePlan plan = plan_blocks(batches, kv_heads, queries, block_rows, keys);
  if (splits && queries > 0 && group * queries <= 96 && keys >= 4096) {
    // Starting and merging splits of fewer than 2048 keys (8 blocks of 256) costs what they save.
    plan.split = std::max<std::int64_t>(2048, divide_up(divide_up(keys, 32), 256) * 256);
    plan.splits = divide_up(keys, plan.split);
  }
  // Masks are ignored, because they may differ by batch element.
  plan.item_scores = group * block_rows * plan.split;
  plan.items_per_task = items_per_task(plan, plan.items());
  return plan;
}

// Plans the weights that keys receive: key blocks whose packed keys fit L2.
[[nodiscard]] inline TilePlan plan_received(std::int64_t batches, std::int64_t kv_heads,
                                            std::int64_t group, std::int64_t queries,
                                            std::int64_t keys) {
  const std::int64_t block_rows = std::clamp<std::int64_t>(keys, 1, 512);
  TilePlan plan = plan_blocks(batches, kv_heads, keys, block_rows, keys);
  plan.items_per_task = items_per_task(plan, group * queries * block_rows);
  return plan;
}

// Plans the backward pass. Each key block holds its own sum of dq until all are added in order. At
// most eight blocks keep memory proportional to queries.
[[nodiscard]] inline TilePlan plan_backward(std::int64_t batches, std::int64_t kv_heads,
                                            std::int64_t group, std::int64_t queries,
                                            std::int64_t keys) {
  const std::int64_t wanted = std::max<std::int64_t>(divide_up(keys, 8), 512);
  const std::int64_t block_rows = std::clamp<std::int64_t>(keys, 1, wanted);
  TilePlan plan = plan_blocks(batches, kv_heads, keys, block_rows, keys);
  plan.item_scores = group * queries * block_rows;
  plan.items_per_task = items_per_task(plan, plan.items());
  return plan;
}

}  // namespace isentrope
