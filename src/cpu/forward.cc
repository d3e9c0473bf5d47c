// The forward pass of one task: a run of queries of one head against all keys they see.
//
//   for each block of keys            packed once, in L2
//     for each strip of queries       a register tile's worth of rows
//       score tile  = Q K^T           in L1
//       weights     = softmax_row     and the row's state
//       accumulator = keep * accumulator + weights V

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/pack-inl.h"
#include "src/cpu/softmax_tile-inl.h"
#include "src/cpu/strip_ranges.h"
#include "src/cpu/tile_product-inl.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// A strip's score tile, 12 x 256 floats, leaves room in a 32 KiB L1 for the panel that streams past it.
constexpr std::size_t kBlockKeys = 256;
using QueryLayout = LeftLayout<1, kStripRows>;
using WeightLayout = LeftLayout<kBlockKeys, 1>;

using Ranges = StripRanges<kStripRows>;

template <bool kMoments>
class ForwardTask {
 public:
  ForwardTask(const ForwardCall& call, const Task& task)
      : call_(call),
        task_(task),
        q_(matrix_of(call.input.q, task.head)),
        k_(matrix_of(call.input.k, task.head)),
        v_(matrix_of(call.input.v, task.head)),
        lambda_(call.lambda.of_head(task.head % call.input.q.extents[1])),
        rows_(static_cast<std::size_t>(task.end - task.begin)),
        dim_(static_cast<std::size_t>(q_.columns)),
        value_columns_(round_up(static_cast<std::size_t>(v_.columns), panel_width())) {
    visible_ = range_of(task.begin);
    for (std::int64_t query = task.begin; query < task.end; ++query) {
      const KeyRange range = range_of(query);
      if (range.size() == 0) continue;
      if (visible_.size() == 0) visible_ = range;
      visible_ = {HWY_MIN(visible_.begin, range.begin), HWY_MAX(visible_.end, range.end)};
    }
  }

  void run() {
    const std::size_t padded_rows = round_up(rows_, kStripRows);
    Scratch scratch(Scratch::rounded(padded_rows * dim_) + Scratch::rounded(padded_rows * value_columns_) +
                    Scratch::rounded(kBlockKeys * dim_) + Scratch::rounded(kBlockKeys * value_columns_));
    queries_ = scratch.take(padded_rows * dim_);
    accumulator_ = scratch.take(padded_rows * value_columns_);
    key_panels_ = scratch.take(kBlockKeys * dim_);
    value_panels_ = scratch.take(kBlockKeys * value_columns_);
    states_.assign(rows_, RowState{});
    pack_transposed(q_, task_.begin, task_.end, kStripRows, queries_, lambda_);
    std::fill_n(accumulator_, padded_rows * value_columns_, 0.0f);
    for (std::int64_t block = visible_.begin; block < visible_.end; block += kBlockKeys) run_block(block);
    write_results();
  }

 private:
  KeyRange range_of(std::int64_t query) const {
    return visible_keys(call_.mask, query, call_.input.q.extents[2], call_.input.k.extents[2]);
  }

  void run_block(std::int64_t block) {
    block_keys_ = HWY_MIN(visible_.end - block, static_cast<std::int64_t>(kBlockKeys));
    pack_transposed(k_, block, block + block_keys_, panel_width(), key_panels_);
    values_finite_ = pack_rows(v_, block, block + block_keys_, value_panels_);
    for (std::size_t row = 0; row < rows_; row += kStripRows) {
      const std::size_t rows = HWY_MIN(kStripRows, rows_ - row);
      const Ranges ranges(rows, block, block_keys_, [&](std::size_t r) {
        return range_of(task_.begin + static_cast<std::int64_t>(row + r));
      });
      if (!ranges.empty()) run_strip(row, rows, ranges);
    }
  }

  void run_strip(std::size_t row, std::size_t rows, const Ranges& ranges) {
    HWY_ALIGN float tile[kStripRows * kBlockKeys];
    float keep[kStripRows] = {};
    const std::size_t width = panel_width();
    const std::size_t first = ranges.first / width * width, last = round_up(ranges.last, width);
    multiply<QueryLayout, Into::replace>({.rows = rows,
                                          .columns = last - first,
                                          .depth = dim_,
                                          .a = queries_ + row * dim_,
                                          .b = key_panels_ + first * dim_,
                                          .b_panel = width * dim_,
                                          .c = tile + first,
                                          .c_stride = kBlockKeys});
    for (std::size_t r = 0; r < rows; ++r) {
      keep[r] = softmax_row<kMoments>(tile + r * kBlockKeys + first, ranges.begin[r] - first,
                                      ranges.end[r] - first, last - first, states_[row + r]);
    }
    const TileProduct weighted_values{.rows = rows,
                                      .columns = value_columns_,
                                      .depth = ranges.last - ranges.first,
                                      .a = tile + ranges.first,
                                      .b = value_panels_ + ranges.first * width,
                                      .b_panel = static_cast<std::size_t>(block_keys_) * width,
                                      .c = accumulator_ + row * value_columns_,
                                      .c_stride = value_columns_,
                                      .keep = keep};
    if (ranges.ragged && !values_finite_) {
      multiply_where<WeightLayout, Into::scale>(weighted_values, [&](std::size_t r, std::size_t j) {
        return ranges.admits(r, ranges.first + j);
      });
    } else {
      multiply<WeightLayout, Into::scale>(weighted_values);
    }
  }

  void write_results() const {
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::int64_t query = task_.begin + static_cast<std::int64_t>(r);
      const RowState& state = states_[r];
      const float* from = accumulator_ + r * value_columns_;
      const View<float, 4>& output = call_.output.output;
      // An empty row's accumulator is 0 and stays so. 1 / s0 is exactly 1 for a single key.
      const float factor = state.empty() ? 0 : static_cast<float>(1 / state.s0);
      float* to = const_cast<float*>(matrix_of(output, task_.head).row(query));
      for (std::int64_t c = 0; c < output.extents[3]; ++c) to[c * output.strides[3]] = factor * from[c];
      write_statistics(finalize(state), query);
    }
  }

  void write_statistics(const RowStats& stats, std::int64_t query) const {
    const RowStatistics& to = call_.output.statistics;
    const auto write = [&](const View<float, 3>& view, double value) {
      if (view) row_of(view, task_.head, query) = static_cast<float>(value);
    };
    write(to.lse, stats.lse);
    write(to.entropy, stats.entropy);
    write(to.collision, stats.collision);
    write(to.max_logit, stats.max_logit);
    write(to.variance, stats.variance);
    write(to.lambda, lambda_[query]);
    if (to.support) row_of(to.support, task_.head, query) = stats.support;
  }

  const ForwardCall& call_;
  const Task task_;
  const Matrix q_, k_, v_;
  const float* const lambda_;        // of every query of the head
  const std::size_t rows_, dim_, value_columns_;
  KeyRange visible_;                 // by any row of the run
  std::vector<RowState> states_;     // one a row
  float* queries_ = nullptr;         // strips of lambda q, transposed
  float* accumulator_ = nullptr;     // [row][value column]
  float* key_panels_ = nullptr;      // this block's keys, transposed
  float* value_panels_ = nullptr;    // this block's values
  std::int64_t block_keys_ = 0;      // keys of this block
  bool values_finite_ = true;        // of this block
};

void forward_task(const ForwardCall& call, std::int64_t index) {
  const Task task = task_of(call.plan, index);
  const RowStatistics& wanted = call.output.statistics;
  if (wanted.entropy || wanted.collision || wanted.variance) {
    ForwardTask<true>(call, task).run();
  } else {
    ForwardTask<false>(call, task).run();
  }
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(forward_task);

void run_forward_task(const ForwardCall& call, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(forward_task)(call, task);
}

}  // namespace isentrope
#endif  // HWY_ONCE
