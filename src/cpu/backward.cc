// The backward pass of one task: a key block of one key head against all queries that see it.
//
//   pack the block's keys and values
//   for each query head of the group, for each tile of its queries
//     for each tile of the block's keys
//       P  = softmax again            from logits lambda Q K^T and the forward pass's lse
//       dz = gradient of the logits   from dp = dO V^T, of the keys that dropout left
//       dV += P^T dO    dK += dz^T lambda Q    dQ += dz K
//
// Every sum runs in an order that the shape alone decides. Where the gradient of max_probability is
// given, a task of its own finds each row's largest key before: the same products, without the
// rest.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/row_ranges.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/gradient_products_f32-inl.h"
#include "src/cpu/steps/gradient_products_pairs-inl.h"
#include "src/cpu/steps/gradient_tile-inl.h"
#include "src/cpu/steps/query_tile-inl.h"
#include "src/cpu/steps/row_gradient-inl.h"
#include "src/cpu/steps/statistic_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// What outlives a tile of queries: the packed keys and values of the block, and the sums dk and dv.
// So it is keys that are cut into blocks here, and each block writes its gradients once.
class BackwardTask {
 public:
  explicit BackwardTask(const BackwardCall& call)
      : call_(call),
        sizes_(call),
        statistics_(call.gradient),
        gradient_row_(gradient_row_for(statistics_.terms())),
        keys_(call.input.k),
        values_(call.input.v),
        tile_(call),
        f32_(sizes_.dim, sizes_.value_dim),
        pairs_(sizes_.dim, sizes_.value_dim),
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
                  pairs_.by_key(sizes_.pairs),
                  pairs_.by_row(sizes_.pairs),
                  pairs_.weights(sizes_.pairs),
                  {sums_.dq, kGradientRows * sizes_.columns},
                  {sums_.dk, sizes_.keys * sizes_.columns},
                  {sums_.dv, sizes_.keys * sizes_.value_columns}}) {}

  void run(std::int64_t index) noexcept {
    list_keys(index);
    // Sums begin at 0, for which tile comes first is a matter of the masks. Those of the keys there
    // are: with all that a tile has room for, 16 keys took twice as many instructions.
    std::fill_n(sums_.dk.data(), keys_.count() * sizes_.columns, 0.0f);
    std::fill_n(sums_.dv.data(), keys_.count() * sizes_.value_columns, 0.0f);
    pack_keys();
    for_each_query_tile([&] {
      run_query_tile();
      return true;
    });
    // dk was summed with queries times lambda in log2, and a logit's gradient is per nat: hence
    // ln 2.
    for (std::size_t j = 0; j < keys_.count(); ++j) {
      const std::int64_t key = item_.begin + static_cast<std::int64_t>(j);
      store_row(call_.result.dk, item_.batch, item_.kv_head, key, static_cast<float>(kLn2),
                sums_.dk.at(j * sizes_.columns, sizes_.columns));
      store_row(call_.result.dv, item_.batch, item_.kv_head, key, 1,
                sums_.dv.at(j * sizes_.value_columns, sizes_.value_columns));
    }
  }

  // Into call_.largest_keys.
  void find_largest_keys(std::int64_t index) noexcept {
    list_keys(index);
    pack_keys();
    for_each_query_tile([&] {
      for_each_key_tile([&](std::size_t key, const GradientRanges& ranges) {
        find_largest_keys_of_tile(key, ranges);
      });
      return true;
    });
  }

 private:
  // Lengths in numbers of the call's own shape, and in the whole panels and tiles of this target.
  struct Sizes {
    explicit Sizes(const BackwardCall& call)
        : group(call.input.q.extents[1] / call.plan.kv_heads),
          dim(static_cast<std::size_t>(call.input.q.extents[3])),
          value_dim(static_cast<std::size_t>(call.input.v.extents[3])),
          columns(round_up(dim, panel_width())),
          value_columns(round_up(value_dim, panel_width())),
          keys(round_up(static_cast<std::size_t>(call.plan.block_rows), kGradientKeys)),
          pairs(Bf16Pairs::serves(call.input.q) && Bf16Pairs::serves(call.input.k) &&
                Bf16Pairs::serves(call.input.v) && Bf16Pairs::serves(call.gradient.d_output)),
          pair_keys(pairs ? keys : 0),
          pair_rows(pairs ? kGradientRows : 0) {}
    std::int64_t group;  // query heads of a key head
    std::size_t dim, value_dim, columns, value_columns;
    std::size_t keys;   // of the longest key block, in whole tiles
    std::size_t pairs;  // 1 where bf16 pairs serve, numbers permitting
    std::size_t pair_keys, pair_rows;
  };

  void list_keys(std::int64_t index) {
    item_ = item_of(call_.plan, index);
    for (Operand* operand : {&keys_, &values_}) {
      operand->clear();
      operand->add(item_.batch, item_.kv_head, item_.begin, item_.end);
      operand->resolve();
    }
  }

  // One arithmetic for a whole key block: dk and dv are sums over all its queries, and a share of
  // each kind would be rounded in two ways.
  void pack_keys() {
    products_ = pairs_fit() ? static_cast<GradientProducts*>(&pairs_) : &f32_;
    products_->pack_keys(keys_, values_);
  }

  // Lists one query tile after the other in tile_ for visit(), until that returns false. Heads come
  // one after the other, so that the keys and values of a group are packed once for all of them.
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

  // Of all queries, too: next to their use against a key block this look costs nothing.
  bool pairs_fit() {
    return sizes_.pairs && Bf16Pairs::fits(keys_) && Bf16Pairs::fits(values_) &&
           for_each_query_tile(
               [&] { return Bf16Pairs::fits(tile_.queries) && Bf16Pairs::fits(tile_.d_output); });
  }

  // Calls visit(first key, ranges) for each tile of the block's keys of which some row of the query
  // tile sees some.
  template <typename Visit>
  void for_each_key_tile(const Visit& visit) {
    const Mask& mask = call_.options.mask;
    for (std::size_t r = 0; r < tile_.rows; ++r) {
      tile_.ranges[r] = r > 0 && rows_are_alike(mask)
                            ? tile_.ranges[0]
                            : row_view(mask, item_.batch, tile_.query(r), call_.input.q.extents[2],
                                       call_.plan.keys)
                                  .keys;
    }
    // A tile of queries that sees no key of this block is not packed: in causal calls that is half
    // of them.
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

  void run_query_tile() {
    std::fill_n(sums_.dq.data(), tile_.rows * sizes_.columns, 0.0f);
    for_each_key_tile(
        [&](std::size_t key, const GradientRanges& ranges) { run_tile(key, ranges); });
    for (std::size_t r = 0; r < tile_.rows; ++r) write_row_gradients(r);
  }

  void pack_queries() {
    for (std::size_t r = 0; r < tile_.rows; ++r) {
      tile_.lambda[r] = scale_log2(tile_.scale.before_cap[tile_.query(r)]);
      tile_.gradients[r] = row_gradient(tile_, r, statistics_, tile_.non_sink_weight[r]);
    }
    products_->pack_queries(tile_);
  }

  // The logits are those that run_tile() meets, bit for bit.
  void find_largest_keys_of_tile(std::size_t key, const GradientRanges& ranges) {
    GradientTile tile(item_, tile_, key, ranges);
    for (std::size_t row = 0; row < tile_.rows; row += kRegisterRows) {
      const std::size_t rows = HWY_MIN(kRegisterRows, tile_.rows - row);
      products_->multiply(tile, row, rows);
      for (std::size_t r = row; r < row + rows; ++r) {
        float* logits = tile.weights + r * kGradientKeys + tile.first;
        const std::size_t begin = ranges.begin[r] - tile.first, end = ranges.end[r] - tile.first;
        if (tile.has_terms())
          finish_logits(tile.terms(r, tile.first), begin, end, tile.last - tile.first, logits);
        LargestKey& largest =
            call_.largest_keys->of_block(item_.batch, tile_.head, tile_.query(r), item_.block);
        for (std::size_t j = begin; j < end; j += ranges.stride)
          if (logits[j] > largest.logit) largest = {logits[j], tile.key_of(tile.first + j)};
      }
    }
  }

  // `key` counts from the key block's first, the ranges from `key`.
  // Rows go through a register tile's height at a time: their logits and dp are still in L1 when
  // the softmax reads them.
  void run_tile(std::size_t key, const GradientRanges& ranges) {
    GradientTile tile(item_, tile_, key, ranges);
    const std::size_t columns = tile.last - tile.first;
    for (std::size_t row = 0; row < tile_.rows; row += kRegisterRows) {
      const std::size_t rows = HWY_MIN(kRegisterRows, tile_.rows - row);
      products_->multiply(tile, row, rows);
      for (std::size_t r = row; r < row + rows; ++r) {
        float* weights = tile.weights + r * kGradientKeys + tile.first;
        float* gradients = tile.gradients + r * kGradientKeys + tile.first;
        const std::size_t begin = ranges.begin[r] - tile.first, end = ranges.end[r] - tile.first;
        // A dropped weight passes no gradient on, and stays in the softmax: dp is dropped before
        // dz is made of it, and P afterwards, for dv.
        HWY_ALIGN float kept[kGradientKeys];
        if (call_.dropout) {
          keep_factors(call_.dropout, {item_.batch, tile_.head, tile_.query(r)},
                       tile.key_of(tile.first), columns, call_.dropout.factor, kept);
          multiply_by(kept, columns, gradients);
        }
        if (tile.has_terms()) {
          run_row_with_terms(tile, r, begin, end, weights, gradients);
        } else {
          run_row(tile, r, begin, end, weights, gradients);
        }
        if (call_.dropout) multiply_by(kept, columns, weights);
      }
      products_->finish_rows(tile, row, rows);
    }
    products_->add(tile, sums_);
  }

  // P and the gradient of the finished logits, out of these and dp. Columns count from the tile's
  // first.
  void run_row(const GradientTile& tile, std::size_t r, std::size_t begin, std::size_t end,
               float* weights, float* gradients) const {
    const RowGradient& row = tile_.gradients[r];
    const std::int64_t first = tile.key_of(tile.first);
    gradient_row_(row, first, begin, end, tile.last - tile.first, weights, gradients);
    if (tile.ranges.stride > 1) clear_between(begin, end, tile.ranges.stride, weights, gradients);
    if (call_.largest_keys) add_at_largest_key(row, first, begin, end, weights, gradients);
  }

  // The gradient of the finished logits, and from it that of bias and scaled score. Columns count
  // from the tile's first.
  void run_row_with_terms(const GradientTile& tile, std::size_t r, std::size_t begin,
                          std::size_t end, float* weights, float* gradients) const {
    HWY_ALIGN float slopes[kGradientKeys];
    const LogitTerms terms = tile.terms(r, tile.first);
    const std::size_t columns = tile.last - tile.first;
    finish_logits(terms, begin, end, columns, weights, slopes);
    // The soft-cap's slope comes after the softmax's gradient and before the scale, as the chain
    // rule has it; the bias enters between them and takes its gradient there.
    run_row(tile, r, begin, end, weights, gradients);
    const auto& d_bias = call_.result.d_bias;
    for (std::size_t j = begin; j < end; ++j) {
      // A key that mask or bias masks has the weight 0 and may have a dp that is NaN.
      if (terms.is_masked(static_cast<std::int64_t>(j))) gradients[j] = weights[j] = 0;
      if (d_bias) {
        d_bias(item_.batch, tile_.head, tile_.query(r), tile.key_of(tile.first + j)) =
            terms.on_bias * gradients[j];
      }
      if (terms.soft_cap > 0) gradients[j] = gradients[j] == 0 ? 0 : gradients[j] * slopes[j];
    }
  }

  // Of a row that sees no key dq is 0, while its q and lambda may be NaN.
  void write_row_gradients(std::size_t r) {
    const std::int64_t query = tile_.query(r);
    const bool is_empty = call_.gradient.statistics.lse(item_.batch, tile_.head, query) ==
                          -std::numeric_limits<float>::infinity();
    const float* dq = sums_.dq.at(r * sizes_.columns, sizes_.columns);
    if (const View<float, 3>& d_lambda = call_.d_lambda_of_block[item_.block]) {
      double sum = 0;
      // d_lambda sums q.k over the keys times dz, which is dq.q: the products need no further pass.
      // The sum is in double, for its terms cancel.
      for (std::size_t c = 0; c < sizes_.dim; ++c) {
        if (is_empty && dq[c] == 0) continue;  // whatever q holds
        sum += static_cast<double>(dq[c]) * static_cast<double>(tile_.queries.at(r, c));
      }
      d_lambda(item_.batch, tile_.head, query) = static_cast<float>(sum);
    }
    const float lambda = is_empty ? 0 : tile_.scale.before_cap[query];
    store_row(call_.dq_of_block[item_.block], item_.batch, tile_.head, query, lambda, dq);
  }

  const BackwardCall& call_;
  const Sizes sizes_;
  const StatisticGradients statistics_;
  const GradientRow gradient_row_;
  Operand keys_, values_;  // of the key block
  QueryTile tile_;
  GradientProductsOf<F32> f32_;
  GradientProductsOf<Bf16Pairs> pairs_;
  GradientProducts* products_ = nullptr;  // of the key block
  GradientSums sums_;
  Scratch scratch_;
  WorkItem item_{};
};

void backward_items(const BackwardCall& call, std::int64_t begin, std::int64_t end) {
  BackwardTask task(call);
  for (std::int64_t index = begin; index < end; ++index) task.run(index);
}

void largest_keys_of_items(const BackwardCall& call, std::int64_t begin, std::int64_t end) {
  BackwardTask task(call);
  for (std::int64_t index = begin; index < end; ++index) task.find_largest_keys(index);
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(backward_items);
HWY_EXPORT(largest_keys_of_items);

void run_backward(const BackwardCall& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_items)(call, begin, end);
}
void find_largest_keys(const BackwardCall& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(largest_keys_of_items)(call, begin, end);
}

}  // namespace isentrope
#endif  // HWY_ONCE
