// Second-order pass of one task: a key block of one key head against all queries that see it.
//
// It computes the tangents of what backward.cc computes, for constant upstream gradients dO. A dash
// is a tangent, and (lambda Q)' that of the scaled queries:
//
//   for each query head of the group, for each tile of its queries
//     for each tile of the block's keys
//       Z  = lambda Q K^T     Z'  = (lambda Q)' K^T + lambda Q K'^T
//       dp = dO V^T           dp' = dO V'^T
//       P, dz and P', dz'     second_order_tile
//       dV' += P'^T dO        dK' += dz'^T lambda Q + dz^T (lambda Q)'
//                             dQ' += dz' K + dz K'
//
// An absent tangent takes no product. Sums over all keys of a row follow from saved rows: the
// output and its tangent, times dO, and statistics with their tangents.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/second_order.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/gradient_task-inl.h"
#include "src/cpu/steps/second_order_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// Computes to = factor (to + more) over whole vectors.
HWY_INLINE void add_scaled(float factor, const float* HWY_RESTRICT more, std::size_t columns,
                           float* HWY_RESTRICT to) {
  const Floats d;
  for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
    const auto sum = hn::Add(hn::Load(d, to + j), hn::Load(d, more + j));
    hn::Store(hn::Mul(hn::Set(d, factor), sum), d, to + j);
  }
}

class SecondOrderTask : GradientTask {
 public:
  explicit SecondOrderTask(const BackwardCall& call)
      : GradientTask(call),
        second_(*call.second),
        second_order_row_(second_order_row_for(statistics_.terms())) {}

  void run(std::int64_t index) noexcept {
    run_item(index, [&] {
      std::fill_n(sums_.of_first_order.data(), sums_.of_first_order.size(), 0.0f);
      // Set before a tile of keys needs them: query tiles that see none have no rows to begin.
      bool begun = false;
      for_each_key_tile([&](std::size_t key, const GradientRanges& ranges) {
        for (std::size_t r = 0; !begun && r < tile_.rows; ++r) changes_[r] = change_of(r);
        begun = true;
        run_tile(key, ranges);
      });
      for (std::size_t r = 0; r < tile_.rows; ++r) write_row_gradients(r);
    });
  }

 private:
  // Arrays of a tile besides those of the backward pass, [row][key].
  struct Tangents {
    HWY_ALIGN float of_logits[kGradientRows * kGradientKeys];  // then of dz
    HWY_ALIGN float of_keys[kGradientRows * kGradientKeys];    // second term of the logits'
    HWY_ALIGN float of_dp[kGradientRows * kGradientKeys];
  };

  // Returns the tangents of the row's coefficients. See row_gradient().
  [[nodiscard]] RowGradientTangent change_of(std::size_t r) const {
    const std::int64_t query = tile_.query(r);
    const float lse = second_.statistics.lse(item_.batch, tile_.head, query);
    if (lse == -std::numeric_limits<float>::infinity()) return {};
    const RowNumbers tangents =
        row_numbers(second_.statistic_tangents, item_.batch, tile_.head, query);
    RowGradientTangent change{.lse = tangents.lse};
    const auto& sinks = call_.options.sinks;
    if (sinks) {
      const float sink = second_.tangents.sinks ? second_.tangents.sinks(tile_.head) : 0;
      change.non_sink = static_cast<float>(non_sink_weight(sinks(tile_.head), lse) *
                                           static_cast<double>(tangents.lse - sink));
    }
    if (sizes_.has_rows[kOutputGradients]) {
      // mean' = (w do.output)', with w' = w (ln w)'
      const double of_output =
          sinks ? static_cast<double>(change.non_sink) * row_product(tile_, r, second_.output) : 0;
      change.base =
          -static_cast<float>(static_cast<double>(tile_.non_sink_weight[r]) *
                              (of_output + row_product(tile_, r, second_.output_tangent)));
    }
    for_each_statistic(
        [&]<typename T>(const Statistic&, const View<const T, 3>& d,
                        const AddGradientTangent& add) {
          if constexpr (std::is_same_v<T, float>)
            if (d) add(d(item_.batch, tile_.head, query), tangents, change);
        },
        second_.d_statistics, kAddGradientTangent);
    return change;
  }

  void run_tile(std::size_t key, const GradientRanges& ranges) {
    GradientTile tile(item_, tile_, key, ranges);
    Tangents tangents;
    const TileNumbers weights{kWeights, tile.weights}, dz{kGradients, tile.gradients},
        dz_tangents{kTangents, tangents.of_logits};
    const bool has_dp = sizes_.has_rows[kOutputGradients];
    const std::size_t at_once = products_->rows_at_once();
    for (std::size_t row = 0; row < tile_.rows; row += at_once) {
      const std::size_t rows = HWY_MIN(at_once, tile_.rows - row);
      multiply(tile, row, rows, tangents);
      for (std::size_t r = row; r < row + rows; ++r) run_row_of_tile(tile, r, tangents);
      products_->finish_rows(tile, dz_tangents, kQueries, row, rows);
      products_->finish_rows(tile, dz, kQueryTangents, row, rows);
      if (has_dp) products_->finish_rows(tile, weights, kOutputGradients, row, rows);
    }
    products_->add_to_rows(tile, dz_tangents, kKeys, dq_sums());
    products_->add_to_keys(tile, dz_tangents, kQueries, dk_sums());
    if (sizes_.has_keys[kKeyTangents]) products_->add_to_rows(tile, dz, kKeyTangents, dq_sums());
    if (sizes_.has_rows[kQueryTangents])
      products_->add_to_keys(tile, dz, kQueryTangents, dk_sums());
    if (asks_first_order())
      products_->add_to_rows(tile, dz, kKeys, {sums_.of_first_order.data(), sizes_.columns});
    if (has_dp) products_->add_to_keys(tile, weights, kOutputGradients, dv_sums());
  }

  // Computes the products of rows row ... row + rows - 1 with the tile's keys; absent ones are 0.
  void multiply(GradientTile& tile, std::size_t row, std::size_t rows, Tangents& tangents) const {
    const auto product = [&](RowSide rows_of, KeySide keys_of, float* to) {
      const bool is_given = sizes_.has_rows[rows_of] && sizes_.has_keys[keys_of];
      if (is_given) return products_->multiply(tile, rows_of, keys_of, row, rows, to);
      std::fill_n(to + row * kGradientKeys, rows * kGradientKeys, 0.0f);
    };
    product(kQueries, kKeys, tile.weights);
    product(kOutputGradients, kValues, tile.gradients);
    product(kQueryTangents, kKeys, tangents.of_logits);
    product(kQueries, kKeyTangents, tangents.of_keys);
    product(kOutputGradients, kValueTangents, tangents.of_dp);
  }

  // Replaces the products of row r by the numbers of the sums: P' less dropped weights, dz and dz'.
  void run_row_of_tile(GradientTile& tile, std::size_t r, Tangents& tangents) const {
    const std::size_t at = r * kGradientKeys + tile.first, columns = tile.last - tile.first;
    const std::size_t begin = tile.ranges.begin[r] - tile.first,
                      end = tile.ranges.end[r] - tile.first;
    float* dp_tangents = tangents.of_dp + at;
    const SecondOrderRow row{tile.weights + at, tile.gradients + at, tangents.of_logits + at,
                             dp_tangents};
    // Products of queries are in log2.
    add_scaled(static_cast<float>(kLn2), tangents.of_keys + at, columns, row.tangents);
    HWY_ALIGN float factors[kGradientKeys];
    if (call_.dropout) {
      keep_factors(call_.dropout, {item_.batch, tile_.head, tile_.query(r)},
                   tile.key_of(tile.first), columns, call_.dropout.factor, factors);
      multiply_by(factors, columns, row.gradients);
      multiply_by(factors, columns, dp_tangents);
    }
    // dp has the factor w, so dp' gains dp (ln w)'.
    if (call_.options.sinks)
      add_multiple(changes_[r].non_sink, row.gradients, columns, dp_tangents);
    if (call_.largest_keys) add_at_largest_key(tile, r, begin, end, row.gradients);
    if (tile.has_terms()) {
      run_row_with_terms(tile, r, begin, end, row);
    } else {
      run_row(tile, r, begin, end, row);
    }
    if (call_.dropout) multiply_by(factors, columns, row.weights);
  }

  static HWY_INLINE void add_multiple(float factor, const float* HWY_RESTRICT from,
                                      std::size_t columns, float* HWY_RESTRICT to) {
    const Floats d;
    for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
      hn::Store(hn::MulAdd(hn::Set(d, factor), hn::Load(d, from + j), hn::Load(d, to + j)), d,
                to + j);
    }
  }

  // Adds the term of max_probability that only the largest key has to its dp.
  void add_at_largest_key(const GradientTile& tile, std::size_t r, std::size_t begin,
                          std::size_t end, float* dp) const {
    const std::int64_t query = tile_.query(r);
    const std::int64_t key =
        call_.largest_keys->of_row(item_.batch, tile_.head, query,
                                   second_.statistics.max_logit(item_.batch, tile_.head, query));
    const std::int64_t j = key - tile.key_of(tile.first);
    if (j >= static_cast<std::int64_t>(begin) && j < static_cast<std::int64_t>(end))
      dp[j] += tile_.gradients[r].d_largest;
  }

  void run_row(const GradientTile& tile, std::size_t r, std::size_t begin, std::size_t end,
               const SecondOrderRow& row) const {
    const std::size_t columns = tile.last - tile.first;
    second_order_row_(tile_.gradients[r], changes_[r], tile.key_of(tile.first), begin, end, columns,
                      row);
    if (tile.ranges.stride == 1) return;
    for (float* numbers : {row.weights, row.gradients, row.tangents})
      clear_between(begin, tile.ranges.stride, columns, numbers);
  }

  // Same for rows with soft-cap or bias: also computes the gradients of bias and scaled score.
  void run_row_with_terms(const GradientTile& tile, std::size_t r, std::size_t begin,
                          std::size_t end, const SecondOrderRow& row) const {
    HWY_ALIGN float slopes[kGradientKeys], curvatures[kGradientKeys], scaled[kGradientKeys];
    const LogitTerms terms = tile.terms(r, tile.first);
    const std::size_t columns = tile.last - tile.first;
    finish_logits(terms, begin, end, columns, row.weights, {slopes, curvatures});
    std::copy_n(row.tangents, columns, scaled);
    const std::int64_t query = tile_.query(r), first = tile.key_of(tile.first);
    BiasTangent bias;
    if (const auto& tangent = second_.tangents.bias)
      bias = {&tangent(item_.batch, tile_.head, query, first), tangent.strides[3]};
    finish_tangents(terms, bias, begin, end, slopes, row.tangents);
    run_row(tile, r, begin, end, row);
    const auto& d_bias = call_.result.d_bias;
    for (std::size_t j = begin; j < end; ++j) {
      // A key masked by mask or bias has weight 0, and its dp may be NaN.
      if (terms.is_masked(static_cast<std::int64_t>(j)))
        row.weights[j] = row.gradients[j] = row.tangents[j] = 0;
      if (d_bias) {
        d_bias(item_.batch, tile_.head, query, first + static_cast<std::int64_t>(j)) =
            terms.on_bias * row.tangents[j];
      }
      if (terms.soft_cap == 0 || (row.gradients[j] == 0 && row.tangents[j] == 0)) continue;
      row.tangents[j] =
          slopes[j] * row.tangents[j] + curvatures[j] * (row.gradients[j] * scaled[j]);
      row.gradients[j] *= slopes[j];
    }
  }

  // A row that sees no key has gradients of 0, while its q and lambda may be NaN. With D = dq of
  // the backward pass before lambda, dq' = lambda D' + lambda' D and d_lambda' = D'.q + D.q'.
  void write_row_gradients(std::size_t r) {
    const std::int64_t query = tile_.query(r);
    const bool is_empty = second_.statistics.lse(item_.batch, tile_.head, query) ==
                          -std::numeric_limits<float>::infinity();
    float* change = sums_.dq.at(r * sizes_.columns, sizes_.columns);
    const float* first =
        asks_first_order() ? sums_.of_first_order.at(r * sizes_.columns, sizes_.columns) : nullptr;
    const ConstTensor& q_tangent = second_.tangents.q;
    if (const View<float, 3>& d_lambda = call_.d_lambda_of_block[item_.block]) {
      double sum = 0;
      for (std::size_t c = 0; c < sizes_.dim; ++c) {
        if (is_empty && change[c] == 0) continue;  // skips q, which may be NaN
        sum += static_cast<double>(change[c]) * static_cast<double>(tile_.queries.at(r, c));
        if (!q_tangent) continue;
        sum += static_cast<double>(first[c]) *
               static_cast<double>(
                   q_tangent(item_.batch, tile_.head, query, static_cast<std::int64_t>(c)));
      }
      d_lambda(item_.batch, tile_.head, query) = static_cast<float>(sum);
    }
    float lambda = is_empty ? 0 : tile_.scale.before_cap[query];
    if (second_.tangents.lambda && !is_empty) {
      const float tangent = second_.tangents.lambda(item_.batch, tile_.head, query);
      for (std::size_t c = 0; c < sizes_.dim; ++c)
        change[c] = lambda * change[c] + tangent * first[c];
      lambda = 1;
    }
    store_row(call_.dq_of_block[item_.block], item_.batch, tile_.head, query, lambda, change);
  }

  const AttentionSecondOrderInput& second_;
  const SecondOrderRowOf second_order_row_;
  RowGradientTangent changes_[kGradientRows];  // of the query tile's rows
};

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define ISENTROPE_TASKS(define) define(run_second_order, SecondOrderTask, BackwardCall)
#include "src/cpu/run_tasks-inl.h"
