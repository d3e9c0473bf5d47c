// GradientTask: data of a task of the backward pass, a key block of one key head and the queries
// that see it, tile by tile.

#if defined(ISENTROPE_GRADIENT_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_TASK_INL_H_
#undef ISENTROPE_GRADIENT_TASK_INL_H_
#else
#define ISENTROPE_GRADIENT_TASK_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/row_ranges.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/gradient_products_f32-inl.h"
#include "src/cpu/steps/gradient_products_pairs-inl.h"
#include "src/cpu/steps/query_tile-inl.h"
#include "src/cpu/steps/row_gradient-inl.h"
#include "src/cpu/steps/statistic_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Data kept across tiles of queries: the packed keys and values of the block, and the sums dk and
// dv. Keys are cut into blocks, so that each block writes its gradients once.
class GradientTask {
 protected:
  // Lengths in numbers of the call's shape, and in whole panels and tiles of this target.
  struct Sizes {
    explicit Sizes(const BackwardCall& call)
        : group(call.input.q.extents[1] / call.plan.kv_heads),
          dim(static_cast<std::size_t>(call.input.q.extents[3])),
          value_dim(static_cast<std::size_t>(call.input.v.extents[3])),
          columns(round_up(dim, panel_width())),
          value_columns(round_up(value_dim, panel_width())),
          keys(round_up(static_cast<std::size_t>(call.plan.block_rows), kGradientKeys)),
          pairs(DType::bf16),
          uses_pairs(pairs.serves(call.input.q) && pairs.serves(call.input.k) &&
                     pairs.serves(call.input.v) && pairs.serves(call.gradient.d_output)),
          pair_keys(uses_pairs ? keys : 0),
          pair_rows(uses_pairs ? kGradientRows : 0) {}
    std::int64_t group;  // query heads of a key head
    std::size_t dim, value_dim, columns, value_columns;
    std::size_t keys;  // of the longest key block, in whole tiles
    Pairs pairs;       // bf16 only: dz may overflow f16
    bool uses_pairs;   // supported, if values permit
    std::size_t pair_keys, pair_rows;
  };

  explicit GradientTask(const BackwardCall& call)
      : call_(call),
        sizes_(call),
        statistics_(call.gradient),
        keys_(call.input.k),
        values_(call.input.v),
        tile_(call),
        f32_({}, sizes_.dim, sizes_.value_dim),
        pairs_(sizes_.pairs, sizes_.dim, sizes_.value_dim),
        sums_{sizes_.columns, sizes_.value_columns, {}, {}, {}},
        scratch_({keys_.pointers(sizes_.keys),
                  keys_.copy(sizes_.keys),
                  values_.pointers(sizes_.keys),
                  values_.copy(sizes_.keys),
                  tile_.queries.pointers(kGradientRows),
                  tile_.queries.copy(kGradientRows),
                  tile_.d_output.pointers(kGradientRows),
                  tile_.d_output.copy(kGradientRows),
                  f32_.keys_across(sizes_.keys),
                  f32_.values_across(sizes_.keys),
                  f32_.key_rows(sizes_.keys),
                  f32_.queries_left(kGradientRows),
                  f32_.d_output_left(kGradientRows),
                  pairs_.keys_across(sizes_.pair_keys),
                  pairs_.values_across(sizes_.pair_keys),
                  pairs_.key_rows(sizes_.pair_keys),
                  pairs_.queries_left(sizes_.pair_rows),
                  pairs_.queries_right(sizes_.pair_rows),
                  pairs_.d_output_left(sizes_.pair_rows),
                  pairs_.d_output_right(sizes_.pair_rows),
                  pairs_.by_key(sizes_.pair_rows),
                  pairs_.by_row(sizes_.pair_rows),
                  pairs_.weights(sizes_.pair_rows),
                  {sums_.dq, kGradientRows * sizes_.columns},
                  {sums_.dk, sizes_.keys * sizes_.columns},
                  {sums_.dv, sizes_.keys * sizes_.value_columns}}) {}

  void list_keys(std::int64_t index) {
    item_ = item_of(call_.plan, index);
    for (Operand* operand : {&keys_, &values_}) {
      operand->clear();
      operand->add(item_.batch, item_.kv_head, item_.begin, item_.end);
      operand->resolve();
    }
  }

  // One arithmetic a key block: dk and dv sum over all its queries and must be rounded alike.
  void pack_keys() {
    products_ = pairs_fit() ? static_cast<GradientProducts*>(&pairs_) : &f32_;
    products_->pack_keys(keys_, values_);
  }

  // Calls visit() with each query tile in tile_, until it returns false. Heads are consecutive, so
  // that a group's keys and values are packed once.
  template <typename Visit>
  bool for_each_query_tile(const Visit& visit) {
    const std::int64_t first_head = item_.kv_head * sizes_.group;
    for (std::int64_t head = first_head; head < first_head + sizes_.group; ++head) {
      for (std::int64_t query = 0; query < call_.input.q.extents[2]; query += kGradientRows) {
        tile_.list(item_.batch, head, query);
        if (!visit()) return false;
      }
    }
    return true;
  }

  // Checks all queries too, which costs nothing next to their products with a key block.
  bool pairs_fit() {
    const Pairs& pairs = sizes_.pairs;
    return sizes_.uses_pairs && pairs.fits(keys_) && pairs.fits(values_) &&
           for_each_query_tile(
               [&] { return pairs.fits(tile_.queries) && pairs.fits(tile_.d_output); });
  }

  // Calls visit(first key, ranges) for each tile of keys that some row of the query tile sees.
  template <typename Visit>
  void for_each_key_tile(const Visit& visit) {
    const Mask& mask = call_.options.mask;
    const bool alike = rows_are_alike(mask);
    for (std::size_t r = 0; r < tile_.rows; ++r) {
      tile_.ranges[r] = r > 0 && alike ? tile_.ranges[0]
                                       : row_view(mask, item_.batch, tile_.query(r),
                                                  call_.input.q.extents[2], call_.plan.keys)
                                             .keys;
    }
    // A query tile that sees no key of this block is not packed: half of them in causal calls.
    bool packed = false;
    for (std::size_t key = 0; key < keys_.count(); key += kGradientKeys) {
      const std::size_t keys = HWY_MIN(kGradientKeys, keys_.count() - key);
      const GradientRanges ranges(tile_.rows, item_.begin + static_cast<std::int64_t>(key),
                                  static_cast<std::int64_t>(keys),
                                  [&](std::size_t r) { return tile_.ranges[r]; });
      if (ranges.empty()) continue;
      if (!packed) pack_queries();
      packed = true;
      visit(key, ranges);
    }
  }

  void pack_queries() {
    for (std::size_t r = 0; r < tile_.rows; ++r) {
      tile_.lambda[r] = scale_log2(tile_.scale.before_cap[tile_.query(r)]);
      tile_.gradients[r] = row_gradient(tile_, r, statistics_, tile_.non_sink_weight[r]);
    }
    products_->pack_queries(tile_);
  }

  const BackwardCall& call_;
  const Sizes sizes_;
  const Pairs::Session session_{sizes_.pairs, sizes_.uses_pairs};
  const StatisticGradients statistics_;
  Operand keys_, values_;  // the key block
  QueryTile tile_;
  GradientProductsOf<F32> f32_;
  GradientProductsOf<Pairs> pairs_;
  GradientProducts* products_ = nullptr;  // for the key block
  GradientSums sums_;
  Scratch scratch_;
  WorkItem item_{};
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
