// The backward pass of one task: a key block of one key head against all queries that see them.
//
//   pack the key block's keys and values
//   for each query head of the group, for each row tile of its queries
//     for each block of keys in the key block
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
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/product/pack_pairs-inl.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/row_ranges.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/gradient_products-inl.h"
#include "src/cpu/steps/gradient_tile-inl.h"
#include "src/cpu/steps/logits-inl.h"
#include "src/cpu/steps/qk_tile-inl.h"
#include "src/cpu/steps/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// One side of the problem, in each layout some product reads.
struct Packed {
  float* transposed = nullptr;  // columns by rows, in panels of rows
  float* rows = nullptr;   // rows by columns, in panels of columns; pairs of rows where in pairs
  float* pairs = nullptr;  // the same of bf16 as it is, in pairs of columns
  bool finite = true;
};

// Whether the gradient of the logits has terms beyond those of output and lse.
bool has_moments(const AttentionGradientInput& g) {
  return g.d_entropy || g.d_collision || g.d_variance;
}

class BackwardTask {
 public:
  explicit BackwardTask(const BackwardCall& call)
      : call_(call),
        in_(call.input),
        group_(in_.q.extents[1] / call.plan.kv_heads),
        queries_(in_.q.extents[2]),
        dim_(static_cast<std::size_t>(in_.q.extents[3])),
        value_dim_(static_cast<std::size_t>(in_.v.extents[3])),
        columns_(round_up(dim_, panel_width())),
        value_columns_(round_up(value_dim_, panel_width())),
        block_keys_(round_up(static_cast<std::size_t>(call.plan.block_rows), kGradientKeys)),
        gradient_row_(has_moments(call.gradient) ? gradient_row<true> : gradient_row<false>),
        has_pairs_(has_bf16_products() && has_whole_pairs(in_.q) && has_whole_pairs(in_.k) &&
                   has_whole_pairs(in_.v) && has_whole_pairs(call.gradient.d_output)),
        has_terms_(call.options.soft_cap > 0 || call.options.bias || call.options.admitted),
        scratch_(block_keys_ * (dim_ + 2 * columns_ + value_dim_ + value_columns_) +
                 kGradientRows * (3 * columns_ + 2 * value_columns_) + 10 * Scratch::rounded(1)),
        dk_(scratch_.take(block_keys_ * columns_)),
        dv_(scratch_.take(block_keys_ * value_columns_)),
        dq_(scratch_.take(kGradientRows * columns_)),
        key_list_(in_.k),
        value_list_(in_.v),
        query_list_(in_.q),
        d_output_list_(call.gradient.d_output ? call.gradient.d_output : in_.v) {
    key_.transposed = scratch_.take(block_keys_ * dim_);
    key_.rows = scratch_.take(block_keys_ * columns_);
    value_.transposed = scratch_.take(block_keys_ * value_dim_);
    query_.rows = scratch_.take(kGradientRows * columns_);
    query_.pairs = scratch_.take(kGradientRows * columns_);
    d_output_.rows = scratch_.take(kGradientRows * value_columns_);
    d_output_.pairs = scratch_.take(kGradientRows * value_columns_);
  }

  void run(std::int64_t index) {
    item_ = item_of(call_.plan, index);
    keys_ = static_cast<std::size_t>(item_.end - item_.begin);
    std::fill_n(dk_, block_keys_ * columns_, 0.0f);
    std::fill_n(dv_, block_keys_ * value_columns_, 0.0f);
    pack_keys();
    for (head_ = item_.kv_head * group_; head_ < (item_.kv_head + 1) * group_; ++head_) {
      for (first_query_ = 0; first_query_ < queries_; first_query_ += kGradientRows) run_row_tile();
    }
    for (std::size_t j = 0; j < keys_; ++j) {
      const std::int64_t key = item_.begin + static_cast<std::int64_t>(j);
      store_row(call_.result.dk, item_.batch, item_.kv_head, key, static_cast<float>(kLn2),
                dk_ + j * columns_);
      store_row(call_.result.dv, item_.batch, item_.kv_head, key, 1, dv_ + j * value_columns_);
    }
  }

 private:
  std::int64_t query_of(std::size_t row) const {
    return first_query_ + static_cast<std::int64_t>(row);
  }

  void pack_keys() {
    key_list_.rows.clear();
    value_list_.rows.clear();
    key_list_.add(in_.k, item_.batch, item_.kv_head, item_.begin, item_.end);
    value_list_.add(in_.v, item_.batch, item_.kv_head, item_.begin, item_.end);
    key_list_.copy_if_strided(keys_copy_);
    value_list_.copy_if_strided(values_copy_);
    in_pairs_ = has_pairs_ && fits_bf16_pairs(key_list_) && fits_bf16_pairs(value_list_) &&
                pairs_fit_queries();
    for (auto& [list, packed] : {std::pair(&key_list_, &key_), std::pair(&value_list_, &value_)}) {
      in_pairs_ ? pack_transposed_pairs(*list, packed->transposed)
                : pack_transposed(*list, packed->transposed);
    }
    key_.finite =
        in_pairs_ ? pack_row_pairs(key_list_, key_.rows) : pack_rows(key_list_, keys_, key_.rows);
  }

  // Of all heads of the group. Next to their use against a key block this look costs nothing.
  bool pairs_fit_queries() {
    for (head_ = item_.kv_head * group_; head_ < (item_.kv_head + 1) * group_; ++head_) {
      for (first_query_ = 0; first_query_ < queries_; first_query_ += kGradientRows) {
        list_row_tile();
        if (!fits_bf16_pairs(query_list_) || !fits_bf16_pairs(d_output_list_)) return false;
      }
    }
    return true;
  }

  // The row tile's rows of queries and output gradients.
  void list_row_tile() {
    rows_ = static_cast<std::size_t>(
        HWY_MIN(queries_ - first_query_, static_cast<std::int64_t>(kGradientRows)));
    const std::int64_t last = query_of(rows_);
    query_list_.rows.clear();
    query_list_.add(in_.q, item_.batch, head_, first_query_, last);
    query_list_.copy_if_strided(queries_copy_);
    d_output_list_.rows.clear();
    if (const ConstTensor& d_output = call_.gradient.d_output) {
      d_output_list_.add(d_output, item_.batch, head_, first_query_, last);
      d_output_list_.copy_if_strided(d_output_copy_);
    }
  }

  void run_row_tile() {
    list_row_tile();
    scale_ = call_.scale.of(item_.batch, head_);
    const Mask& mask = call_.options.mask;
    for (std::size_t r = 0; r < rows_; ++r) {
      ranges_[r] = r > 0 && all_rows_alike(mask)
                       ? ranges_[0]
                       : row_view(mask, item_.batch, query_of(r), queries_, call_.plan.keys).keys;
    }
    std::fill_n(dq_, kGradientRows * columns_, 0.0f);
    bool packed = false;
    for (std::size_t key = 0; key < keys_; key += kGradientKeys) {
      const std::size_t block_keys = HWY_MIN(kGradientKeys, keys_ - key);
      const GradientRanges ranges(rows_, item_.begin + static_cast<std::int64_t>(key),
                                  static_cast<std::int64_t>(block_keys),
                                  [&](std::size_t r) { return ranges_[r]; });
      if (ranges.empty()) continue;
      if (!packed) pack_row_tile();
      packed = true;
      run_tile(key, ranges);
    }
    write_row_tile();
  }

  void pack_row_tile() {
    for (std::size_t r = 0; r < rows_; ++r) lambda_[r] = scale_log2(scale_.before_cap[query_of(r)]);
    for (std::size_t r = 0; r < rows_; ++r) {
      row_gradients_[r] = row_gradient(call_, item_.batch, head_, query_of(r), non_sink_weight_[r]);
    }
    if (in_pairs_) {
      for (auto& [list, packed] :
           {std::pair(&query_list_, &query_), std::pair(&d_output_list_, &d_output_)}) {
        packed->finite = pack_row_pairs(*list, packed->rows);
        pack_column_pairs(*list, rows_, packed->pairs);
      }
      return;
    }
    query_.finite = pack_rows(query_list_, rows_, query_.rows, lambda_);
    d_output_.finite = true;
    if (call_.gradient.d_output) {
      d_output_.finite = pack_rows(d_output_list_, rows_, d_output_.rows, non_sink_weight_);
    } else {
      std::fill_n(d_output_.rows, rows_ * value_columns_, 0.0f);
    }
  }

  // `key` counts from the key block's first key, the ranges from `key`.
  void run_tile(std::size_t key, const GradientRanges& ranges) {
    GradientTile tile;
    GradientPairs pairs;
    const std::size_t width = panel_width();
    const std::size_t first = ranges.first / width * width, last = round_up(ranges.last, width);
    for (std::size_t row = 0; row < rows_; row += kRegisterRows) {
      const std::size_t rows = HWY_MIN(kRegisterRows, rows_ - row);
      run_rows(row, rows, key, first, last, ranges, tile);
      if (in_pairs_) round_tile(tile, row, rows, first, last, lambda_, non_sink_weight_, pairs);
    }
    const GradientProducts products{.ranges = ranges,
                                    .rows = rows_,
                                    .keys = keys_,
                                    .key = key,
                                    .columns = columns_,
                                    .value_columns = value_columns_,
                                    .key_rows = key_.rows,
                                    .query_rows = query_.rows,
                                    .d_output_rows = d_output_.rows,
                                    .dq = dq_,
                                    .dk = dk_,
                                    .dv = dv_};
    const auto sees = [&](std::size_t r, std::size_t j) { return row_sees(ranges, r, key, j); };
    const bool finite = key_.finite && query_.finite && d_output_.finite;
    if (in_pairs_) {
      add_gradients_in_pairs(products, pairs);
      if (!finite) add_nonfinite(products, tile, sees);
      return;
    }
    // The register tile rounds its rows up, over keys of the block that no row of the row tile may
    // see.
    const bool narrow = ranges.first > 0 || ranges.last < ranges.block;
    const bool masks = ranges.ragged || narrow || call_.options.admitted || call_.options.bias;
    masks && !finite ? add_gradients<true>(products, tile, sees)
                     : add_gradients<false>(products, tile, sees);
  }

  // Weights and dz of rows row ... row + rows - 1 and the block's keys first ... last - 1.
  void run_rows(std::size_t row, std::size_t rows, std::size_t key, std::size_t first,
                std::size_t last, const GradientRanges& ranges, GradientTile& tile) {
    const std::size_t columns = last - first;
    const auto scores = [&](const Packed& left, const float* factors, const Packed& right,
                            std::size_t depth, float* to) {
      multiply_scores({.depth = depth,
                       .in_pairs = in_pairs_,
                       .rows = in_pairs_ ? left.pairs : left.rows,
                       .padded_rows = rows_,
                       .factors = factors,
                       .keys = right.transposed},
                      row, rows, key + first, columns, to + row * kGradientKeys + first,
                      kGradientKeys);
    };
    scores(query_, lambda_, key_, dim_, tile.weights);
    scores(d_output_, non_sink_weight_, value_, value_dim_, tile.gradients);
    for (std::size_t r = row; r < row + rows; ++r) {
      float* weights = tile.weights + r * kGradientKeys + first;
      float* gradients = tile.gradients + r * kGradientKeys + first;
      const std::size_t begin = ranges.begin[r] - first, end = ranges.end[r] - first;
      if (has_terms_) {
        run_row_with_terms(r, item_.begin + static_cast<std::int64_t>(key + first), begin, end,
                           columns, weights, gradients);
      } else {
        gradient_row_(row_gradients_[r], begin, end, columns, weights, gradients);
      }
    }
  }

  // What packing in pairs left out because it is not finite, so that it meets no row or key that
  // does not see it.
  template <typename Sees>
  void add_nonfinite(const GradientProducts& p, const GradientTile& tile, const Sees& sees) {
    const std::size_t first = p.ranges.first, last = p.ranges.last;
    for_each_nonfinite(
        key_list_, p.key + first, p.key + last, [&](std::size_t j, std::size_t c, float x) {
          for (std::size_t r = 0; r < rows_; ++r) {
            if (!sees(r, j - p.key)) continue;
            dq_[r * columns_ + c] += tile.gradients[r * kGradientKeys + j - p.key] * x;
          }
        });
    const auto add = [&](const RowList& from, const float* factors, const float* left, float* to,
                         std::size_t columns) {
      for_each_nonfinite(from, 0, rows_, [&](std::size_t r, std::size_t c, float x) {
        for (std::size_t j = first; j < last; ++j) {
          if (!sees(r, j)) continue;
          to[(p.key + j) * columns + c] += left[r * kGradientKeys + j] * (factors[r] * x);
        }
      });
    };
    add(query_list_, lambda_, tile.gradients, dk_, columns_);
    add(d_output_list_, non_sink_weight_, tile.weights, dv_, value_columns_);
  }

  // The gradient of the finished logits, and from it that of bias and scaled score. `key` is the
  // call's key of the row's first column.
  void run_row_with_terms(std::size_t r, std::int64_t key, std::size_t begin, std::size_t end,
                          std::size_t columns, float* weights, float* gradients) const {
    HWY_ALIGN float slopes[kGradientKeys];
    const LogitTerms terms =
        logit_terms(call_.options, scale_, item_.batch, head_, query_of(r), key);
    finish_logits(terms, begin, end, columns, weights, slopes);
    gradient_row_(row_gradients_[r], begin, end, columns, weights, gradients);
    const auto& d_bias = call_.result.d_bias;
    for (std::size_t j = begin; j < end; ++j) {
      // A key masked by mask or bias has the weight 0 and may have a dp that is NaN.
      if (terms.is_masked(static_cast<std::int64_t>(j))) gradients[j] = weights[j] = 0;
      if (d_bias) {
        d_bias(item_.batch, head_, query_of(r), key + static_cast<std::int64_t>(j)) =
            terms.on_bias * gradients[j];
      }
      if (terms.soft_cap > 0) gradients[j] = gradients[j] == 0 ? 0 : gradients[j] * slopes[j];
    }
  }

  // Of a row that sees no key dq is 0, while its q and lambda may be NaN.
  bool is_empty(std::size_t r) const {
    return call_.gradient.lse(item_.batch, head_, query_of(r)) ==
           -std::numeric_limits<float>::infinity();
  }

  void write_row_tile() {
    const Tensor& dq = call_.dq_of_block[item_.block];
    const View<float, 3>& d_lambda = call_.d_lambda_of_block[item_.block];
    RowList queries(in_.q);
    if (d_lambda) queries.add(in_.q, item_.batch, head_, first_query_, query_of(rows_));
    for (std::size_t r = 0; r < rows_; ++r) {
      const float* dq_row = dq_ + r * columns_;
      if (d_lambda) {
        double sum = 0;
        for (std::size_t c = 0; c < dim_; ++c) {
          if (is_empty(r) && dq_row[c] == 0) continue;  // whatever q holds
          sum += static_cast<double>(dq_row[c]) *
                 static_cast<double>(queries.at(r, static_cast<std::int64_t>(c)));
        }
        d_lambda(item_.batch, head_, query_of(r)) = static_cast<float>(sum);
      }
      const float lambda = is_empty(r) ? 0 : scale_.before_cap[query_of(r)];
      store_row(dq, item_.batch, head_, query_of(r), lambda, dq_row);
    }
  }

  // Whether row r of the row tile sees key j of the block that begins at `key` of the key block.
  bool row_sees(const GradientRanges& ranges, std::size_t r, std::size_t key, std::size_t j) const {
    if (!ranges.sees(r, j)) return false;
    return !has_terms_ || !logit_terms(call_.options, scale_, item_.batch, head_, query_of(r),
                                       item_.begin + static_cast<std::int64_t>(key + j))
                               .is_masked(0);
  }

  const BackwardCall& call_;
  const AttentionInput& in_;
  const std::int64_t group_, queries_;
  const std::size_t dim_, value_dim_, columns_, value_columns_;
  const std::size_t block_keys_;  // of the longest key block, in whole blocks
  void (*const gradient_row_)(const RowGradient&, std::size_t, std::size_t, std::size_t,
                              float* HWY_RESTRICT, float* HWY_RESTRICT);
  const bool has_pairs_;  // whether dot products can read these bf16 rows
  const bool has_terms_;
  Scratch scratch_;
  float *dk_, *dv_;  // of the key block; dk in log2, as the queries are
  float* dq_;        // of the row tile, without lambda
  RowList key_list_, value_list_, query_list_, d_output_list_;
  // Copies of those whose columns lie apart.
  std::vector<std::byte> keys_copy_, values_copy_, queries_copy_, d_output_copy_;
  // Of the work item of the plan at hand:
  WorkItem item_{};
  std::size_t keys_ = 0;
  bool in_pairs_ = false;  // all products
  Packed key_, value_;
  // Of the row tile at hand:
  std::int64_t head_ = 0, first_query_ = 0;
  std::size_t rows_ = 0;
  HeadScale scale_{};
  KeyRange ranges_[kGradientRows];
  RowGradient row_gradients_[kGradientRows];
  float lambda_[kGradientRows] = {};  // in log2; as non_sink_weight_ for whole steps of rows
  float non_sink_weight_[kGradientRows] = {};  // weight that the sink leaves the real keys
  Packed query_, d_output_;  // queries times lambda_, output gradients times non_sink_weight_
};

void backward_task(const BackwardCall& call, std::int64_t begin, std::int64_t end) {
  BackwardTask task(call);
  for (std::int64_t index = begin; index < end; ++index) task.run(index);
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(backward_task);

void run_backward(const BackwardCall& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_task)(call, begin, end);
}

}  // namespace isentrope
#endif  // HWY_ONCE
