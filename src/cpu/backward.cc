// The backward pass of one task: a run of keys of one head against all queries that see them.
//
//   pack the run's keys and values
//   for each strip of queries
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
#include "src/cpu/pack-inl.h"
#include "src/cpu/strip_ranges.h"
#include "src/cpu/tile_product-inl.h"
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

template <bool kMoments>
class BackwardTask {
 public:
  BackwardTask(const BackwardCall& call, const Task& task)
      : call_(call),
        task_(task),
        q_(matrix_of(call.input.q, task.head)),
        k_(matrix_of(call.input.k, task.head)),
        v_(matrix_of(call.input.v, task.head)),
        lambda_(call.lambda.of_head(task.head % call.input.q.extents[1])),
        keys_(static_cast<std::size_t>(task.end - task.begin)),
        dim_(static_cast<std::size_t>(q_.columns)),
        value_dim_(static_cast<std::size_t>(v_.columns)),
        columns_(round_up(dim_, panel_width())),
        value_columns_(round_up(value_dim_, panel_width())) {}

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
    pack_transposed(k_, task_.begin, task_.end, panel_width(), key_.transposed);
    pack_transposed(v_, task_.begin, task_.end, panel_width(), value_.transposed);
    key_.finite = pack_rows(k_, task_.begin, task_.end, key_.rows);
    for (first_query_ = 0; first_query_ < queries(); first_query_ += kRows) run_strip();
    write_rows(dk_, columns_, call_.result.dk, task_.begin, keys_);
    write_rows(dv_, value_columns_, call_.result.dv, task_.begin, keys_);
  }

 private:
  std::int64_t queries() const { return call_.input.q.extents[2]; }

  void run_strip() {
    rows_ = static_cast<std::size_t>(HWY_MIN(queries() - first_query_, static_cast<std::int64_t>(kRows)));
    std::fill_n(dq_, kRows * columns_, 0.0f);
    bool packed = false;
    for (std::size_t key = 0; key < keys_; key += kBlockKeys) {
      const std::size_t block_keys = HWY_MIN(kBlockKeys, keys_ - key);
      const Ranges ranges(rows_, task_.begin + static_cast<std::int64_t>(key),
                          static_cast<std::int64_t>(block_keys), [&](std::size_t r) {
                            return visible_keys(call_.mask, first_query_ + static_cast<std::int64_t>(r),
                                                queries(), call_.input.k.extents[2]);
                          });
      if (ranges.empty()) continue;
      if (!packed) pack_strip();
      packed = true;
      run_tile(key, ranges);
    }
    const View<float, 4>& to = call_.dq_of_run[task_.run];
    for (std::size_t r = 0; r < rows_; ++r) {
      const float lambda = lambda_[first_query_ + static_cast<std::int64_t>(r)];
      for (std::size_t c = 0; c < dim_; ++c) dq_[r * columns_ + c] *= lambda;
    }
    write_rows(dq_, columns_, to, first_query_, rows_);
  }

  void pack_strip() {
    const std::int64_t last = first_query_ + static_cast<std::int64_t>(rows_);
    pack_transposed(q_, first_query_, last, kStripRows, query_.transposed, lambda_);
    query_.finite = pack_rows(q_, first_query_, last, query_.rows, lambda_);
    if (call_.gradient.d_output) {
      const Matrix d_output = matrix_of(call_.gradient.d_output, task_.head);
      pack_transposed(d_output, first_query_, last, kStripRows, d_output_.transposed);
      d_output_.finite = pack_rows(d_output, first_query_, last, d_output_.rows);
    } else {
      std::fill_n(d_output_.transposed, kRows * value_dim_, 0.0f);
      std::fill_n(d_output_.rows, kRows * value_columns_, 0.0f);
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      row_gradients_[r] = row_gradient(first_query_ + static_cast<std::int64_t>(r));
    }
  }

  RowGradient row_gradient(std::int64_t query) const {
    const AttentionGradientInput& g = call_.gradient;
    const auto value = [&](const View<const float, 3>& view) {
      return view ? row_of(view, task_.head, query) : 0.0f;
    };
    const float lse = value(g.lse);
    // The row admits no key: whatever its upstream gradients hold goes nowhere.
    if (lse == -std::numeric_limits<float>::infinity()) return {};
    double mean_dp = 0;
    if (g.d_output) {
      const Matrix output = matrix_of(g.output, task_.head), d_output = matrix_of(g.d_output, task_.head);
      for (std::int64_t c = 0; c < output.columns; ++c) {
        mean_dp += static_cast<double>(output.row(query)[c * output.column_stride]) *
                   static_cast<double>(d_output.row(query)[c * d_output.column_stride]);
      }
    }
    const float d_collision = value(g.d_collision), d_variance = value(g.d_variance);
    return {.lse = lse,
            .entropy = kMoments ? value(g.entropy) : 0,
            .base = value(g.d_lse) - static_cast<float>(mean_dp) - 2 * d_collision * value(g.collision) -
                    d_variance * value(g.variance),
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
      gradient_row<kMoments>(row_gradients_[r], ranges.begin[r] - first, ranges.end[r] - first, columns,
                             weights + r * kBlockKeys + first, gradients + r * kBlockKeys + first);
    }
    if (ranges.ragged && !(key_.finite && query_.finite && d_output_.finite)) {
      add_products<true>(key, ranges, weights, gradients);
    } else {
      add_products<false>(key, ranges, weights, gradients);
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
          [&](std::size_t r, std::size_t j) { return ranges.admits(row + r, ranges.first + j); });
    }
    for (std::size_t j = ranges.first / width * width; j < ranges.last; j += kStripRows) {
      const auto admits = [&](std::size_t r, std::size_t i) { return ranges.admits(i, j + r); };
      TileProduct product{.rows = HWY_MIN(kStripRows, ranges.last - j),
                          .columns = columns_,
                          .depth = rows_,
                          .a = gradients + j,
                          .b = query_.rows,
                          .b_panel = rows_ * width,
                          .c = dk_ + (key + j) * columns_,
                          .c_stride = columns_};
      add_product<kWhereAdmitted, TransposedTileLayout>(product, admits);
      product.columns = product.c_stride = value_columns_;
      product.a = weights + j;
      product.b = d_output_.rows;
      product.c = dv_ + (key + j) * value_columns_;
      add_product<kWhereAdmitted, TransposedTileLayout>(product, admits);
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

  void write_rows(const float* from, std::size_t stride, const View<float, 4>& to, std::int64_t first,
                  std::size_t rows) const {
    const std::int64_t batch = task_.head / to.extents[1], head = task_.head % to.extents[1];
    for (std::size_t r = 0; r < rows; ++r, from += stride) {
      float* row = &to(batch, head, first + static_cast<std::int64_t>(r), 0);
      for (std::int64_t c = 0; c < to.extents[3]; ++c) row[c * to.strides[3]] = from[c];
    }
  }

  const BackwardCall& call_;
  const Task task_;
  const Matrix q_, k_, v_;
  const float* const lambda_;  // of every query of the head
  const std::size_t keys_, dim_, value_dim_, columns_, value_columns_;
  std::int64_t first_query_ = 0;  // of this strip
  std::size_t rows_ = 0;          // of this strip
  RowGradient row_gradients_[kRows];
  Packed key_, value_;        // of the run
  Packed query_, d_output_;   // of this strip; queries times lambda
  float *dk_ = nullptr, *dv_ = nullptr;  // of the run
  float* dq_ = nullptr;                  // of this strip, without lambda
};

void backward_task(const BackwardCall& call, std::int64_t index) {
  const Task task = task_of(call.plan, index);
  const AttentionGradientInput& g = call.gradient;
  if (g.d_entropy || g.d_collision || g.d_variance) {
    BackwardTask<true>(call, task).run();
  } else {
    BackwardTask<false>(call, task).run();
  }
}

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
