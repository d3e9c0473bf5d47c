// GradientTask: data of a task of the backward pass or the second-order pass. A task is a key block
// of one key head, and the queries that see it, tile by tile.

#if defined(ISENTROPE_GRADIENT_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_TASK_INL_H_
#undef ISENTROPE_GRADIENT_TASK_INL_H_
#else
#define ISENTROPE_GRADIENT_TASK_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/product/transpose-inl.h"
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
          has_rows{true, static_cast<bool>(call.gradient.d_output),
                   static_cast<bool>(call.query_tangents)},
          has_keys{true, true, static_cast<bool>(call.key_tangents),
                   static_cast<bool>(call.value_tangents)} {
      uses_pairs = pairs.serves(call.gradient.d_output);
      for (const ConstTensor* tensor :
           {&call.input.q, &call.input.k, &call.input.v, &call.query_tangents, &call.key_tangents,
            &call.value_tangents})
        uses_pairs = uses_pairs && (!*tensor || pairs.serves(*tensor));
    }
    // Rows and keys of each side to make room for; none in an arithmetic that is not used.
    [[nodiscard]] SideCounts counts(bool is_used) const {
      SideCounts counts{};
      for (std::size_t side = 0; side < kKeySides; ++side)
        counts.keys[side] = is_used && has_keys[side] ? keys : 0;
      for (std::size_t side = 0; side < kRowSides; ++side)
        counts.rows[side] = is_used && has_rows[side] ? kGradientRows : 0;
      return counts;
    }
    std::int64_t group;  // query heads of a key head
    std::size_t dim, value_dim, columns, value_columns;
    std::size_t keys;         // of the longest key block, in whole tiles
    Pairs pairs;              // bf16 only: dz may overflow f16
    bool uses_pairs = false;  // supported, if values permit
    std::array<bool, kRowSides> has_rows;
    std::array<bool, kKeySides> has_keys;
  };

  explicit GradientTask(const BackwardCall& call)
      : call_(call),
        sizes_(call),
        statistics_(call.gradient),
        keys_{Operand(call.input.k), Operand(call.input.v), Operand(call.key_tangents),
              Operand(call.value_tangents)},
        tile_(call),
        f32_({}, sizes_.dim, sizes_.value_dim),
        pairs_(sizes_.pairs, sizes_.dim, sizes_.value_dim),
        scratch_(keys_[kKeys].arrays(sizes_.keys), keys_[kValues].arrays(sizes_.keys),
                 keys_[kKeyTangents].arrays(sizes_.counts(true).keys[kKeyTangents]),
                 keys_[kValueTangents].arrays(sizes_.counts(true).keys[kValueTangents]),
                 tile_.queries.arrays(kGradientRows), tile_.d_output.arrays(kGradientRows),
                 tile_.query_tangents.arrays(kGradientRows), f32_.arrays(sizes_.counts(true)),
                 pairs_.arrays(sizes_.counts(sizes_.uses_pairs)),
                 pairs_.numbers(sizes_.uses_pairs ? kGradientRows : 0,
                                sizes_.uses_pairs && call.second ? kGradientRows : 0),
                 Scratch::Array(sums_.dq, kGradientRows * sizes_.columns),
                 Scratch::Array(sums_.of_first_order,
                                asks_first_order() ? kGradientRows * sizes_.columns : 0),
                 Scratch::Array(sums_.dk, sizes_.keys * sizes_.columns),
                 Scratch::Array(sums_.dv, sizes_.keys * sizes_.value_columns)) {}

  // Computes an item: run_query_tile() adds each query tile to the sums.
  template <typename Run>
  void run_item(std::int64_t index, const Run& run_query_tile) {
    list_keys(index);
    // Sums begin at 0, because masks decide which tile comes first. Clearing only the block's keys,
    // in transposable blocks, halved the instructions of 16 keys.
    const std::size_t keys = keys_[kKeys].count(), sums = round_up(keys, kTurned);
    std::fill_n(sums_.dk.data(), sums * sizes_.columns, 0.0f);
    std::fill_n(sums_.dv.data(), sums * sizes_.value_columns, 0.0f);
    pack_keys();
    for_each_query_tile([&] {
      std::fill_n(sums_.dq.data(), tile_.rows * sizes_.columns, 0.0f);
      run_query_tile();
      return true;
    });
    products_->finish_sums(dk_sums(), keys);
    products_->finish_sums(dv_sums(), keys);
    // dk was summed with queries times lambda in log2, and a logit's gradient is per nat.
    for (std::size_t j = 0; j < keys; ++j) {
      const std::int64_t key = item_.begin + static_cast<std::int64_t>(j);
      store_row(call_.result.dk, item_.batch, item_.kv_head, key, static_cast<float>(kLn2),
                sums_.dk.at(j * sizes_.columns, sizes_.columns));
      store_row(call_.result.dv, item_.batch, item_.kv_head, key, 1,
                sums_.dv.at(j * sizes_.value_columns, sizes_.value_columns));
    }
  }

  [[nodiscard]] TileSums dq_sums() const { return {sums_.dq.data(), sizes_.columns}; }
  [[nodiscard]] TileSums dk_sums() const { return {sums_.dk.data(), sizes_.columns}; }
  [[nodiscard]] TileSums dv_sums() const { return {sums_.dv.data(), sizes_.value_columns}; }

  // Returns whether the second-order pass needs dq of the backward pass: lambda has a tangent or a
  // gradient.
  [[nodiscard]] bool asks_first_order() const {
    return call_.second && (call_.second->tangents.lambda || call_.result.d_lambda);
  }

  void list_keys(std::int64_t index) {
    item_ = item_of(call_.plan, index);
    for (std::size_t side = 0; side < kKeySides; ++side) {
      keys_[side].clear();
      if (!sizes_.has_keys[side]) continue;
      keys_[side].add(item_.batch, item_.kv_head, item_.begin, item_.end);
      keys_[side].resolve();
    }
  }

  // One arithmetic a key block: dk and dv sum over all its queries and must be rounded alike.
  void pack_keys() {
    products_ = pairs_fit() ? static_cast<GradientProducts*>(&pairs_) : &f32_;
    for (const KeySide side : {kKeys, kValues, kKeyTangents, kValueTangents})
      if (sizes_.has_keys[side]) products_->pack_keys(side, keys_[side]);
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
    return sizes_.uses_pairs &&
           std::all_of(keys_.begin(), keys_.end(),
                       [&](const Operand& keys) { return pairs.fits(keys); }) &&
           for_each_query_tile([&] {
             return pairs.fits(tile_.queries) && pairs.fits(tile_.d_output) &&
                    pairs.fits(tile_.query_tangents);
           });
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
    for (std::size_t key = 0; key < keys_[kKeys].count(); key += kGradientKeys) {
      const std::size_t keys = HWY_MIN(kGradientKeys, keys_[kKeys].count() - key);
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
      tile_.tangent_factor[r] =
          call_.query_tangents_are_scaled ? static_cast<float>(kLog2E) : tile_.lambda[r];
      tile_.gradients[r] = row_gradient(tile_, r, statistics_, tile_.non_sink_weight[r]);
    }
    for (const RowSide side : {kQueries, kOutputGradients, kQueryTangents})
      if (sizes_.has_rows[side]) products_->pack_rows(side, tile_);
  }

  const BackwardCall& call_;
  const Sizes sizes_;
  const Pairs::Session session_{sizes_.pairs, sizes_.uses_pairs};
  const StatisticGradients statistics_;
  std::array<Operand, kKeySides> keys_;  // the key block
  QueryTile tile_;
  GradientProductsOf<F32> f32_;
  GradientProductsOf<Pairs> pairs_;
  GradientProducts* products_ = nullptr;  // for the key block
  // dq without lambda; dk (in log2 like queries) and dv.
  struct Sums {
    Buffer<float> dq, of_first_order, dk, dv;
  };
  Sums sums_;
  Scratch scratch_;
  WorkItem item_{};
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
