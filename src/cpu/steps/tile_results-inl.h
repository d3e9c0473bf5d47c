// Writes the results of a row tile's rows to the caller's arrays.

#if defined(ISENTROPE_TILE_RESULTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TILE_RESULTS_INL_H_
#undef ISENTROPE_TILE_RESULTS_INL_H_
#else
#define ISENTROPE_TILE_RESULTS_INL_H_
#endif

#include <algorithm>

#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/steps/row_results.h"
#include "src/cpu/steps/row_tile_state-inl.h"
#include "src/row/sink.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Row `query` of a head.
struct RowIndex {
  std::int64_t batch, head, query;
};

template <typename From, typename To>
HWY_INLINE void write_column(const View<To, 3>& view, const RowIndex& at, const From* from,
                             std::size_t count) {
  if (!view) return;
  To* to = &view(at.batch, at.head, at.query);
  if (view.strides[2] == 1) return static_cast<void>(std::copy_n(from, count, to));
  for (std::size_t r = 0; r < count; ++r, to += view.strides[2]) *to = from[r];
}

// Writes statistics: rows r ... r + count - 1 of the row tile are queries at.query ... of one head.
HWY_INLINE void write_statistics(const ForwardCall& call, const RowTileState& state,
                                 const RowTileStats& stats, const RowIndex& at, std::size_t r,
                                 std::size_t count) {
  const RowStatistics& to = call.output.statistics;
  for_each_statistic(
      [&]<typename T>(const Statistic& statistic, const View<T, 3>& view, const RowColumn& column) {
        if constexpr (std::is_same_v<T, float>) {
          if (statistic.of_row) write_column(view, at, column.rows + r, count);
        }
      },
      to, stats);
  write_column(to.support, at, state.support + r, count);
  if (!to.lambda) return;
  // Inlined for rows that see a key: a call for each row took 3 % of 512 heads of 64 queries.
  const HeadScale scale = call.scale.of(at.batch, at.head);
  float lambda[kStateRows];
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t query = at.query + static_cast<std::int64_t>(i),
                       support = state.support[r + i];
    lambda[i] =
        support > 0 ? scale.lambda(query) : lambda_of(call, at.batch, at.head, query, support);
  }
  write_column(to.lambda, at, lambda, count);
}

// Returns the weight that the sink leaves to a row's keys.
HWY_INLINE float non_sink_weight_of(const ForwardCall& call, std::int64_t head,
                                    std::int64_t support, float lse) {
  if (!call.options.sinks || support == 0) return 1;
  return static_cast<float>(non_sink_weight(lse, call.options.sinks(head)));
}

// Writes output and statistics of rows row ... row + rows - 1 of a work item, all in one row tile.
// sums[r], stride floats apart, are the value sums of row row + r.
HWY_INLINE void write_tile_results(const ForwardCall& call, const WorkItem& item, std::size_t row,
                                   std::size_t rows, const RowTileState& state, const float* sums,
                                   std::size_t stride) {
  const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
  RowTileStats stats;
  finalize_row_tile(state, rows, stats);
  // Processes the rows of one head at a time, because a tile of a grouped call may span two heads.
  for (std::size_t r = 0; r < rows;) {
    const std::int64_t head = head_of(item, group, row + r), query = query_of(item, row + r);
    const std::size_t count = HWY_MIN(rows - r, static_cast<std::size_t>(item.end - query));
    write_statistics(call, state, stats, {item.batch, head, query}, r, count);
    for (std::int64_t at = query; at < query + static_cast<std::int64_t>(count); ++at, ++r) {
      const float factor = call.dropout.factor * stats.factor.rows[r] *
                           non_sink_weight_of(call, head, state.support[r], stats.lse.rows[r]);
      store_row(call.output.output, item.batch, head, at, factor, sums + r * stride);
    }
  }
}

// Writes the same rows' states and value sums of one split, for merge_splits().
HWY_INLINE void write_partials(const ForwardCall& call, std::int64_t index, std::size_t row,
                               std::size_t rows, const RowTileState& state, const float* sums,
                               std::size_t stride) {
  const auto columns = static_cast<std::size_t>(call.input.v.extents[3]);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t at = static_cast<std::size_t>(index * call.partials->rows) + row + r;
    call.partials->states[at] = state.row(r);
    std::copy_n(sums + r * stride, columns, call.partials->sums.data() + at * columns);
  }
}

// Writes rows row ... row + rows - 1 of work item `index`, of value sums sums[r]: to the caller, or
// for the merge of splits. Rows without keys are set to 0: nobody wrote their sums.
HWY_INLINE void write_rows(const ForwardCall& call, std::int64_t index, std::size_t row,
                           std::size_t rows, const RowTileState& state, float* sums,
                           std::size_t stride) {
  if (state.is_empty(rows)) std::fill_n(sums, rows * stride, 0.0f);
  if (call.partials) return write_partials(call, index, row, rows, state, sums, stride);
  write_tile_results(call, item_of(call.plan, index), row, rows, state, sums, stride);
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
