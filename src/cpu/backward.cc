// Backward pass of one task: a key block of one key head against all queries that see it.
//
//   pack the block's keys and values
//   for each query head of the group, for each tile of its queries
//     for each tile of the block's keys
//       P  = softmax again            from logits lambda Q K^T and the forward pass's lse
//       dz = gradient of the logits   from dp = dO V^T, of the keys that dropout left
//       dV += P^T dO    dK += dz^T lambda Q    dQ += dz K
//
// Every sum runs in an order that the shape alone decides. If max_probability has an upstream
// gradient, LargestKeysTask first finds each row's largest key with the same products.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/gradient_task-inl.h"
#include "src/cpu/steps/gradient_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

class BackwardTask : GradientTask {
 public:
  explicit BackwardTask(const BackwardCall& call)
      : GradientTask(call), gradient_row_(gradient_row_for(statistics_.terms())) {}

  void run(std::int64_t index) noexcept {
    run_item(index, [&] {
      for_each_key_tile(
          [&](std::size_t key, const GradientRanges& ranges) { run_tile(key, ranges); });
      for (std::size_t r = 0; r < tile_.rows; ++r) write_row_gradients(r);
    });
  }

 private:
  // Processes one tile of keys. `key` counts from the key block's first, the ranges from `key`. Few
  // rows are processed at a time, so that their logits and dp are in L1 for the softmax.
  void run_tile(std::size_t key, const GradientRanges& ranges) {
    GradientTile tile(item_, tile_, key, ranges);
    const TileNumbers p{kWeights, tile.weights}, dz{kGradients, tile.gradients};
    const bool has_dp = sizes_.has_rows[kOutputGradients];
    const std::size_t at_once = products_->rows_at_once();
    for (std::size_t row = 0; row < tile_.rows; row += at_once) {
      const std::size_t rows = HWY_MIN(at_once, tile_.rows - row);
      products_->multiply(tile, kQueries, kKeys, row, rows, tile.weights);
      if (has_dp) {
        products_->multiply(tile, kOutputGradients, kValues, row, rows, tile.gradients);
      } else {  // gradients of statistics remain
        std::fill_n(tile.gradients + row * kGradientKeys, rows * kGradientKeys, 0.0f);
      }
      for (std::size_t r = row; r < row + rows; ++r) run_row_of_tile(tile, r);
      products_->finish_rows(tile, dz, kQueries, row, rows);
      if (has_dp) products_->finish_rows(tile, p, kOutputGradients, row, rows);
    }
    products_->add_to_rows(tile, dz, kKeys, dq_sums());
    products_->add_to_keys(tile, dz, kQueries, dk_sums());
    if (has_dp) products_->add_to_keys(tile, p, kOutputGradients, dv_sums());
  }

  // Replaces logits and dp of row r by P, without dropped weights, and the gradient of the logits.
  void run_row_of_tile(GradientTile& tile, std::size_t r) const {
    const std::size_t columns = tile.last - tile.first;
    float* weights = tile.weights + r * kGradientKeys + tile.first;
    float* gradients = tile.gradients + r * kGradientKeys + tile.first;
    const std::size_t begin = tile.ranges.begin[r] - tile.first,
                      end = tile.ranges.end[r] - tile.first;
    // A dropped weight passes no gradient but stays in the softmax: P is dropped later, for dv.
    HWY_ALIGN float factors[kGradientKeys];
    if (call_.dropout) {
      keep_factors(call_.dropout, {item_.batch, tile_.head, tile_.query(r)},
                   tile.key_of(tile.first), columns, call_.dropout.factor, factors);
      multiply_by(factors, columns, gradients);
    }
    if (tile.has_terms()) {
      run_row_with_terms(tile, r, begin, end, weights, gradients);
    } else {
      run_row(tile, r, begin, end, weights, gradients);
    }
    if (call_.dropout) multiply_by(factors, columns, weights);
  }

  // Replaces logits and dp by P and the gradient of the logits. Columns count within the tile.
  void run_row(const GradientTile& tile, std::size_t r, std::size_t begin, std::size_t end,
               float* weights, float* gradients) const {
    const RowGradient& row = tile_.gradients[r];
    const std::int64_t first = tile.key_of(tile.first);
    gradient_row_(row, first, begin, end, tile.last - tile.first, weights, gradients);
    if (tile.ranges.stride > 1) {
      for (float* numbers : {weights, gradients})
        clear_between(begin, tile.ranges.stride, tile.last - tile.first, numbers);
    }
    if (!call_.largest_keys) return;
    const std::int64_t query = tile_.query(r);
    const std::int64_t key = call_.largest_keys->of_row(
        item_.batch, tile_.head, query,
        call_.gradient.statistics.max_logit(item_.batch, tile_.head, query));
    add_at_largest_key(row, key, first, begin, end, weights, gradients);
  }

  // Same for rows with soft-cap or bias: also computes the gradients of bias and scaled score.
  void run_row_with_terms(const GradientTile& tile, std::size_t r, std::size_t begin,
                          std::size_t end, float* weights, float* gradients) const {
    HWY_ALIGN float slopes[kGradientKeys];
    const LogitTerms terms = tile.terms(r, tile.first);
    const std::size_t columns = tile.last - tile.first;
    finish_logits(terms, begin, end, columns, weights, {.slopes = slopes});
    // The chain rule's order: softmax, bias (with the logit's gradient), soft-cap's slope, scale.
    run_row(tile, r, begin, end, weights, gradients);
    const auto& d_bias = call_.result.d_bias;
    for (std::size_t j = begin; j < end; ++j) {
      // A key masked by mask or bias has weight 0, and its dp may be NaN.
      if (terms.is_masked(static_cast<std::int64_t>(j))) gradients[j] = weights[j] = 0;
      if (d_bias) {
        d_bias(item_.batch, tile_.head, tile_.query(r), tile.key_of(tile.first + j)) =
            terms.on_bias * gradients[j];
      }
      if (terms.soft_cap > 0) gradients[j] = gradients[j] == 0 ? 0 : gradients[j] * slopes[j];
    }
  }

  // A row that sees no key has dq 0, while its q and lambda may be NaN.
  void write_row_gradients(std::size_t r) {
    const std::int64_t query = tile_.query(r);
    const bool is_empty = call_.gradient.statistics.lse(item_.batch, tile_.head, query) ==
                          -std::numeric_limits<float>::infinity();
    const float* dq = sums_.dq.at(r * sizes_.columns, sizes_.columns);
    if (const View<float, 3>& d_lambda = call_.d_lambda_of_block[item_.block]) {
      double sum = 0;
      // d_lambda = sum_j q.k_j dz_j = dq.q: no further pass. In double because its terms cancel.
      for (std::size_t c = 0; c < sizes_.dim; ++c) {
        if (is_empty && dq[c] == 0) continue;  // skips q, which may be NaN
        sum += static_cast<double>(dq[c]) * static_cast<double>(tile_.queries.at(r, c));
      }
      d_lambda(item_.batch, tile_.head, query) = static_cast<float>(sum);
    }
    const float lambda = is_empty ? 0 : tile_.scale.before_cap[query];
    store_row(call_.dq_of_block[item_.block], item_.batch, tile_.head, query, lambda, dq);
  }

  const GradientRow gradient_row_;
};

class LargestKeysTask : GradientTask {
 public:
  explicit LargestKeysTask(const BackwardCall& call) : GradientTask(call) {}

  void run(std::int64_t index) noexcept {
    list_keys(index);
    pack_keys();
    for_each_query_tile([&] {
      for_each_key_tile(
          [&](std::size_t key, const GradientRanges& ranges) { run_tile(key, ranges); });
      return true;
    });
  }

 private:
  // The logits equal BackwardTask's bit for bit.
  void run_tile(std::size_t key, const GradientRanges& ranges) {
    GradientTile tile(item_, tile_, key, ranges);
    const std::size_t at_once = products_->rows_at_once();
    for (std::size_t row = 0; row < tile_.rows; row += at_once) {
      const std::size_t rows = HWY_MIN(at_once, tile_.rows - row);
      products_->multiply(tile, kQueries, kKeys, row, rows, tile.weights);
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
};

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define ISENTROPE_TASKS(define)                    \
  define(run_backward, BackwardTask, BackwardCall) \
      define(find_largest_keys, LargestKeysTask, BackwardCall)
#include "src/cpu/run_tasks-inl.h"
