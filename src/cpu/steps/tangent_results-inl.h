// Begins and ends the rows of a row tile in the tangent pass: reads results of the forward pass,
// and writes tangents.

#if defined(ISENTROPE_TANGENT_RESULTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TANGENT_RESULTS_INL_H_
#undef ISENTROPE_TANGENT_RESULTS_INL_H_
#else
#define ISENTROPE_TANGENT_RESULTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/product/store-inl.h"
#include "src/cpu/steps/statistic_gradient-inl.h"
#include "src/cpu/steps/tangent_tile-inl.h"
#include "src/row/sink.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Reads the results of rows row ... row + rows - 1 of a work item.
HWY_INLINE void begin_rows(const TangentCall& call, const WorkItem& item, std::size_t row,
                           std::size_t rows, TangentRows& to) {
  to.clear();
  const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
  for (std::size_t r = 0; r < rows; ++r) {
    const RowNumbers results = row_numbers(call.tangent.statistics, item.batch,
                                           head_of(item, group, row + r), query_of(item, row + r));
    // A row without keys gives each the weight 0. If all its logits are -inf, it ends as NaN.
    if (results.lse != -std::numeric_limits<float>::infinity())
      to.lse_log2[r] = static_cast<float>(kLog2E * static_cast<double>(results.lse));
    to.entropy[r] = results.entropy;
    to.distance[r] = results.distance;
  }
}

// Returns the tangent of a statistic of row r. Slopes of all but lse have a mean of 0 under the
// weights, so lse' enters only those that tangent_tile() left unshifted.
using StatisticTangent = double (*)(const TangentRows& rows, std::size_t r,
                                    const StatisticFields<double>& results);

inline constexpr StatisticFields<StatisticTangent> kStatisticTangent = {
    .lse = [](const TangentRows& rows, std::size_t r, const StatisticFields<double>&)
               HWY_ATTR { return rows.mean[r]; },
    .entropy = [](const TangentRows& rows, std::size_t r, const StatisticFields<double>&)
                   HWY_ATTR { return -rows.by_u[r]; },
    .collision =
        [](const TangentRows& rows, std::size_t r, const StatisticFields<double>& results)
            HWY_ATTR { return 2 * (rows.by_weight[r] - results.collision * rows.mean[r]); },
    .variance =
        [](const TangentRows& rows, std::size_t r, const StatisticFields<double>& results)
            HWY_ATTR {
              return rows.by_square[r] + 2 * rows.by_u[r] - results.variance * rows.mean[r];
            },
    .distance = [](const TangentRows& rows, std::size_t r, const StatisticFields<double>&)
                    HWY_ATTR { return rows.by_distance[r] - rows.excess[r] * rows.mean[r]; },
    .max_probability =
        [](const TangentRows& rows, std::size_t r,
           const StatisticFields<double>& results) HWY_ATTR {
          return results.max_probability * (static_cast<double>(rows.of_largest[r]) - rows.mean[r]);
        },
};
static_assert(has_each_gradient(kStatisticTangent),
              "a statistic that has a gradient in statistics.h has its tangent here");

// Computes sums[c] = factor * sums[c] - shift * output[c] of a row.
HWY_INLINE void shift_by_output(const ConstTensor& output, const WorkItem& item, std::int64_t head,
                                std::int64_t query, float factor, float shift, float* sums) {
  const std::int64_t at =
      item.batch * output.strides[0] + head * output.strides[1] + query * output.strides[2];
  for_type(output.type, [&](auto type) HWY_ATTR {
    const auto* row = static_cast<const decltype(type)*>(output.data) + at;
    for (std::int64_t c = 0; c < output.extents[3]; ++c)
      sums[c] = factor * sums[c] - shift * to_float(row[c * output.strides[3]]);
  });
}

// Writes the tangents of rows row ... row + rows - 1 of a work item, of value sums sums[r].
HWY_INLINE void write_tangents(const TangentCall& call, const WorkItem& item, std::size_t row,
                               std::size_t rows, const TangentRows& of_rows, float* sums,
                               std::size_t stride) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::int64_t group = call.input.q.extents[1] / call.plan.kv_heads;
  const auto& sinks = call.options.sinks;
  const auto& sink_tangents = call.tangent.tangents.sinks;
  for (std::size_t r = 0; r < rows; ++r, sums += stride) {
    const std::int64_t head = head_of(item, group, row + r), query = query_of(item, row + r);
    const RowNumbers floats = row_numbers(call.tangent.statistics, item.batch, head, query);
    StatisticFields<double> results;
    for_each_statistic([](const Statistic&, float number, double& to) { to = number; }, floats,
                       results);
    const bool is_empty = of_rows.support[r] == 0;
    // If all logits are -inf, the row is NaN.
    const double lse_tangent = is_empty                    ? 0
                               : results.lse == -kInfinity ? kInfinity - kInfinity
                                                           : of_rows.mean[r];
    if (is_empty) {
      std::fill_n(sums, stride, 0.0f);
    } else {
      // A sink's weight r leaves w = 1 - r to the keys, and (ln w)' = r (lse' - sink').
      const double sink = sinks ? sinks(head) : -kInfinity;
      const double of_sink = sinks ? non_sink_weight(sink, results.lse) : 0;
      const double sink_tangent = sink_tangents ? sink_tangents(head) : 0;
      const double shift = lse_tangent - of_sink * (lse_tangent - sink_tangent);
      const double factor = sinks ? non_sink_weight(results.lse, sink) : 1;
      shift_by_output(call.tangent.output, item, head, query,
                      call.dropout.factor * static_cast<float>(factor), static_cast<float>(shift),
                      sums);
    }
    store_row(call.result.output, item.batch, head, query, 1, sums);
    for_each_statistic(
        [&]<typename T>(const Statistic&, const View<T, 3>& view, const StatisticTangent& of) {
          if (!view) return;
          const bool is_set = is_empty || std::isnan(lse_tangent);
          view(item.batch, head, query) =
              static_cast<T>(is_set ? lse_tangent : of(of_rows, r, results));
        },
        call.result.statistics, kStatisticTangent);
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
