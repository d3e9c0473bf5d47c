// The backward pass of one task: a run of keys of one key head against all queries that see them.
//
//   pack the run's keys and values
//   for each query head of the group, for each strip of its queries
//     for each block of keys in the run
//       weights   = softmax again     from logits Q K^T and the forward pass's lse
//       gradients = dz                from dp = dO V^T
//       dV += weights^T dO    dK += dz^T lambda Q    dQ += dz K
//
// Every sum runs in an order that the shape alone decides.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "src/cpu/gradient_tile-inl.h"
#include "src/cpu/kernels.h"
#include "src/cpu/logit_terms-inl.h"
#include "src/cpu/pack-inl.h"
#include "src/cpu/strip_ranges.h"
#include "src/cpu/tile_product-inl.h"
#include "src/row_results.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// Two tiles of 48 x 128 floats are live at once. Fewer rows would make dK and dV, whose products are as
// deep as the strip is tall, spend their time on loading and storing sums.
constexpr std::size_t kBlockKeys = 128;
constexpr std::size_t kRows = 4 * kStripRows;
using StripLayout = LeftLayout<1, kStripRows>;            // packed queries or output gradients
using TileLayout = LeftLayout<kBlockKeys, 1>;             // a tile
using TransposedTileLayout = LeftLayout<1, kBlockKeys>;   // its transpose
using Ranges = StripRanges<kRows>;

// One side of the problem, in each layout some product reads.
struct Packed {
  float* transposed = nullptr;  // columns by rows, in panels or strips of rows
  float* rows = nullptr;        // rows by columns, in panels of columns
  bool finite = true;
};

// Whether the gradient of the logits has terms beyond those of output and lse.
bool has_moments(const AttentionGradientInput& g) { return g.d_entropy || g.d_collision || g.d_variance; }

class BackwardTask {
 public:
  BackwardTask(const BackwardCall& call, std::int64_t index)
      : call_(call),
        in_(call.input),
        task_(task_of(call.plan, index)),
        group_(in_.q.extents[1] / call.plan.kv_heads),
        queries_(in_.q.extents[2]),
        keys_(static_cast<std::size_t>(task_.end - task_.begin)),
        dim_(static_cast<std::size_t>(in_.q.extents[3])),
        value_dim_(static_cast<std::size_t>(in_.v.extents[3])),
        columns_(round_up(dim_, panel_width())),
        value_columns_(round_up(value_dim_, panel_width())),
        gradient_row_(has_moments(call.gradient) ? gradient_row<true> : gradient_row<false>),
        has_terms_(call.options.soft_cap > 0 || call.options.bias || call.options.admitted) {}

  void run() {
    const std::size_t padded_keys = round_up(keys_, kBlockKeys);
    const std::size_t per_key = dim_ + columns_ + value_dim_ + columns_ + value_columns_;
    const std::size_t per_query = dim_ + columns_ + value_dim_ + value_columns_ + columns_;
    Scratch scratch(per_key * padded_keys + per_query * kRows + 10 * Scratch::rounded(1));
    key_.transposed = scratch.take(padded_keys * dim_);
    key_.rows = scratch.take(padded_keys * columns_);
    value_.transposed = scratch.take(padded_keys * value_dim_);
    dk_ = scratch.take(padded_keys * columns_);
    dv_ = scratch.take(padded_keys * value_columns_);
    query_.transposed = scratch.take(kRows * dim_);
    query_.rows = scratch.take(kRows * columns_);
    d_output_.transposed = scratch.take(kRows * value_dim_);
    d_output_.rows = scratch.take(kRows * value_columns_);
    dq_ = scratch.take(kRows * columns_);
    std::fill_n(dk_, padded_keys * columns_, 0.0f);
    std::fill_n(dv_, padded_keys * value_columns_, 0.0f);
    pack_keys();
    for (head_ = task_.kv_head * group_; head_ < (task_.kv_head + 1) * group_; ++head_) {
      for (first_query_ = 0; first_query_ < queries_; first_query_ += kRows) run_strip();
    }
    for (std::size_t j = 0; j < keys_; ++j) {
      const std::int64_t key = task_.begin + static_cast<std::int64_t>(j);
      write_row(call_.result.dk, task_.batch, task_.kv_head, key, 1, dk_ + j * columns_);
      write_row(call_.result.dv, task_.batch, task_.kv_head, key, 1, dv_ + j * value_columns_);
    }
  }

 private:
  std::int64_t query_of(std::size_t row) const { return first_query_ + static_cast<std::int64_t>(row); }

  void pack_keys() {
    RowList keys(in_.k), values(in_.v);
    keys.add(in_.k, task_.batch, task_.kv_head, task_.begin, task_.end);
    values.add(in_.v, task_.batch, task_.kv_head, task_.begin, task_.end);
    pack_transposed(keys, panel_width(), key_.transposed);
    pack_transposed(values, panel_width(), value_.transposed);
    key_.finite = pack_rows(keys, key_.rows);
  }

  void run_strip() {
    rows_ = static_cast<std::size_t>(HWY_MIN(queries_ - first_query_, static_cast<std::int64_t>(kRows)));
    scale_ = call_.scale.of(task_.batch, head_);
    for (std::size_t r = 0; r < rows_; ++r) {
      ranges_[r] = row_view(call_.options.mask, task_.batch, query_of(r), queries_, call_.plan.keys).keys;
    }
    std::fill_n(dq_, kRows * columns_, 0.0f);
    bool packed = false;
    for (std::size_t key = 0; key < keys_; key += kBlockKeys) {
      const std::size_t block_keys = HWY_MIN(kBlockKeys, keys_ - key);
      const Ranges ranges(rows_, task_.begin + static_cast<std::int64_t>(key),
                          static_cast<std::int64_t>(block_keys), [&](std::size_t r) { return ranges_[r]; });
      if (ranges.empty()) continue;
      if (!packed) pack_strip();
      packed = true;
      run_tile(key, ranges);
    }
    write_strip();
  }

  void pack_strip() {
    const std::int64_t last = query_of(rows_);
    RowList queries(in_.q);
    queries.add(in_.q, task_.batch, head_, first_query_, last);
    const float* lambda = scale_.before_cap + first_query_;
    pack_transposed(queries, kStripRows, query_.transposed, lambda);
    query_.finite = pack_rows(queries, query_.rows, lambda);
    for (std::size_t r = 0; r < rows_; ++r) prepare_row(r);
    const ConstTensor& d_output = call_.gradient.d_output;
    if (d_output) {
      RowList rows(d_output);
      rows.add(d_output, task_.batch, head_, first_query_, last);
      pack_transposed(rows, kStripRows, d_output_.transposed, beside_sink_);
      d_output_.finite = pack_rows(rows, d_output_.rows, beside_sink_);
    } else {
      std::fill_n(d_output_.transposed, kRows * value_dim_, 0.0f);
      std::fill_n(d_output_.rows, kRows * value_columns_, 0.0f);
    }
  }

  // With a sink of weight 1 - w, output = w sum_j p_j v_j. The product rule leaves
  // dz_j = p_j w (do.v_j - do.output), so the sink enters as a factor on do alone.
  void prepare_row(std::size_t r) {
    const AttentionGradientInput& g = call_.gradient;
    const std::int64_t query = query_of(r);
    const auto value = [&](const View<const float, 3>& view) {
      return view ? view(task_.batch, head_, query) : 0.0f;
    };
    const float lse = value(g.lse);
    row_gradients_[r] = {.lse = lse};
    beside_sink_[r] = 0;
    // The row admits no key: whatever its upstream gradients hold goes nowhere. (Should it admit keys whose
    // logits are all -inf, this lse makes them NaN, as its output is.)
    if (lse == -std::numeric_limits<float>::infinity()) return;
    const double beside_sink =
        call_.options.sink ? weight_beside_sink(lse, call_.options.sink(head_)) : 1.0;
    beside_sink_[r] = static_cast<float>(beside_sink);
    const double mean_dp = g.d_output ? beside_sink * output_product(g, task_.batch, head_, query) : 0.0;
    const float d_collision = value(g.d_collision), d_variance = value(g.d_variance);
    row_gradients_[r] = {.lse = lse,
                         .entropy = value(g.entropy),
                         .base = value(g.d_lse) - static_cast<float>(mean_dp) -
                                 2 * d_collision * value(g.collision) - d_variance * value(g.variance),
                         .linear = 2 * d_variance - value(g.d_entropy),
                         .quadratic = d_variance,
                         .collision = 2 * d_collision};
  }

  // `key` counts from the run's first key, the ranges from `key`.
  void run_tile(std::size_t key, const Ranges& ranges) {
    HWY_ALIGN float weights[kRows * kBlockKeys];
    HWY_ALIGN float gradients[kRows * kBlockKeys];
    const std::size_t width = panel_width();
    const std::size_t first = ranges.first / width * width, last = round_up(ranges.last, width);
    const std::size_t columns = last - first;
    for (std::size_t row = 0; row < rows_; row += kStripRows) {
      const std::size_t rows = HWY_MIN(kStripRows, rows_ - row), at = row * kBlockKeys + first;
      multiply<StripLayout, Into::replace>({.rows = rows,
                                            .columns = columns,
                                            .depth = dim_,
                                            .a = query_.transposed + row * dim_,
                                            .b = key_.transposed + (key + first) * dim_,
                                            .b_panel = width * dim_,
                                            .c = weights + at,
                                            .c_stride = kBlockKeys});
      multiply<StripLayout, Into::replace>({.rows = rows,
                                            .columns = columns,
                                            .depth = value_dim_,
                                            .a = d_output_.transposed + row * value_dim_,
                                            .b = value_.transposed + (key + first) * value_dim_,
                                            .b_panel = width * value_dim_,
                                            .c = gradients + at,
                                            .c_stride = kBlockKeys});
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      float* row_weights = weights + r * kBlockKeys + first;
      float* row_gradients = gradients + r * kBlockKeys + first;
      const std::size_t begin = ranges.begin[r] - first, end = ranges.end[r] - first;
      if (has_terms_) {
        run_row_with_terms(r, task_.begin + static_cast<std::int64_t>(key + first), begin, end, columns,
                           row_weights, row_gradients);
      } else {
        gradient_row_(row_gradients_[r], begin, end, columns, row_weights, row_gradients);
      }
    }
    // The register tile rounds its rows up, over keys of the block that no row of the strip may see.
    const bool narrow = ranges.first > 0 || ranges.last < ranges.block;
    const bool hides = ranges.ragged || narrow || call_.options.admitted || call_.options.bias;
    if (hides && !(key_.finite && query_.finite && d_output_.finite)) {
      add_products<true>(key, ranges, weights, gradients);
    } else {
      add_products<false>(key, ranges, weights, gradients);
    }
  }

  // The gradient of the finished logits, and from it that of bias and scaled score. `key` is the call's key
  // of the row's first column.
  void run_row_with_terms(std::size_t r, std::int64_t key, std::size_t begin, std::size_t end,
                          std::size_t columns, float* weights, float* gradients) const {
    HWY_ALIGN float slopes[kBlockKeys];
    const LogitTerms terms = logit_terms(call_.options, scale_, task_.batch, head_, query_of(r), key);
    finish_logits(terms, begin, end, columns, weights, slopes);
    gradient_row_(row_gradients_[r], begin, end, columns, weights, gradients);
    const auto& d_bias = call_.result.d_bias;
    for (std::size_t j = begin; j < end; ++j) {
      // A key hidden by mask or bias has the weight 0 and may have a dp that is NaN.
      if (terms.hides(static_cast<std::int64_t>(j))) gradients[j] = weights[j] = 0;
      if (d_bias) {
        d_bias(task_.batch, head_, query_of(r), key + static_cast<std::int64_t>(j)) =
            terms.on_bias * gradients[j];
      }
      if (terms.soft_cap > 0) gradients[j] = gradients[j] == 0 ? 0 : gradients[j] * slopes[j];
    }
  }

  // Of a row that admits no key dq is 0, while its q and lambda may be NaN.
  bool is_empty(std::size_t r) const {
    return call_.gradient.lse(task_.batch, head_, query_of(r)) == -std::numeric_limits<float>::infinity();
  }

  void write_strip() {
    const Tensor& dq = call_.dq_of_run[task_.run];
    const View<float, 3>& d_lambda = call_.d_lambda_of_run[task_.run];
    RowList queries(in_.q);
    if (d_lambda) queries.add(in_.q, task_.batch, head_, first_query_, query_of(rows_));
    for (std::size_t r = 0; r < rows_; ++r) {
      const float* dq_row = dq_ + r * columns_;
      if (d_lambda) {
        double sum = 0;
        for (std::size_t c = 0; c < dim_; ++c) {
          if (is_empty(r) && dq_row[c] == 0) continue;  // whatever q holds
          sum += static_cast<double>(dq_row[c]) *
                 static_cast<double>(queries.at(r, static_cast<std::int64_t>(c)));
        }
        d_lambda(task_.batch, head_, query_of(r)) = static_cast<float>(sum);
      }
      const float lambda = is_empty(r) ? 0 : scale_.before_cap[query_of(r)];
      write_row(dq, task_.batch, head_, query_of(r), lambda, dq_row);
    }
  }

  // dQ += dz K, dK += dz^T Q and dV += weights^T dO.
  template <bool kWhereAdmitted>
  void add_products(std::size_t key, const Ranges& ranges, const float* weights, const float* gradients) {
    const std::size_t width = panel_width();
    for (std::size_t row = 0; row < rows_; row += kStripRows) {
      add_product<kWhereAdmitted, TileLayout>(
          {.rows = HWY_MIN(kStripRows, rows_ - row),
           .columns = columns_,
           .depth = ranges.last - ranges.first,
           .a = gradients + row * kBlockKeys + ranges.first,
           .b = key_.rows + (key + ranges.first) * width,
           .b_panel = keys_ * width,
           .c = dq_ + row * columns_,
           .c_stride = columns_},
          [&](std::size_t r, std::size_t j) { return admits(ranges, row + r, key, ranges.first + j); });
    }
    for (std::size_t j = ranges.first / width * width; j < ranges.last; j += kStripRows) {
      const auto sees = [&](std::size_t r, std::size_t i) { return admits(ranges, i, key, j + r); };
      TileProduct product{.rows = HWY_MIN(kStripRows, ranges.last - j),
                          .columns = columns_,
                          .depth = rows_,
                          .a = gradients + j,
                          .b = query_.rows,
                          .b_panel = rows_ * width,
                          .c = dk_ + (key + j) * columns_,
                          .c_stride = columns_};
      add_product<kWhereAdmitted, TransposedTileLayout>(product, sees);
      product.columns = product.c_stride = value_columns_;
      product.a = weights + j;
      product.b = d_output_.rows;
      product.c = dv_ + (key + j) * value_columns_;
      add_product<kWhereAdmitted, TransposedTileLayout>(product, sees);
    }
  }

  template <bool kWhereAdmitted, typename Left, typename Admits>
  static void add_product(const TileProduct& product, const Admits& admits) {
    if constexpr (kWhereAdmitted) {
      multiply_where<Left, Into::add>(product, admits);
    } else {
      multiply<Left, Into::add>(product);
    }
  }

  // Whether row r of the strip sees key j of the block that begins at `key` of the run.
  bool admits(const Ranges& ranges, std::size_t r, std::size_t key, std::size_t j) const {
    if (!ranges.admits(r, j)) return false;
    return !has_terms_ || !logit_terms(call_.options, scale_, task_.batch, head_, query_of(r),
                                       task_.begin + static_cast<std::int64_t>(key + j))
                               .hides(0);
  }

  const BackwardCall& call_;
  const AttentionInput& in_;
  const Task task_;
  const std::int64_t group_, queries_;
  const std::size_t keys_, dim_, value_dim_, columns_, value_columns_;
  void (*const gradient_row_)(const RowGradient&, std::size_t, std::size_t, std::size_t,
                              float* HWY_RESTRICT, float* HWY_RESTRICT);
  const bool has_terms_;
  Packed key_, value_;                   // of the run
  float *dk_ = nullptr, *dv_ = nullptr;  // of the run
  // Of the strip at hand:
  std::int64_t head_ = 0, first_query_ = 0;
  std::size_t rows_ = 0;
  HeadScale scale_{};
  KeyRange ranges_[kRows];
  RowGradient row_gradients_[kRows];
  float beside_sink_[kRows];  // weight that the sink leaves the real keys
  Packed query_, d_output_;   // queries times lambda, output gradients times beside_sink_
  float* dq_ = nullptr;       // without lambda
};

void backward_task(const BackwardCall& call, std::int64_t index) { BackwardTask(call, index).run(); }

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(backward_task);

void run_backward_task(const BackwardCall& call, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(backward_task)(call, task);
}

}  // namespace isentrope
#endif  // HWY_ONCE
