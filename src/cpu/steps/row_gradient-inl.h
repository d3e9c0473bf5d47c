// Coefficients of the gradient of one row, from its results and upstream gradients.

#if defined(ISENTROPE_ROW_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_ROW_GRADIENT_INL_H_
#undef ISENTROPE_ROW_GRADIENT_INL_H_
#else
#define ISENTROPE_ROW_GRADIENT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/load-inl.h"
#include "src/cpu/steps/gradient_tile-inl.h"
#include "src/cpu/steps/query_tile-inl.h"
#include "src/cpu/steps/row_results.h"
#include "src/cpu/steps/statistic_gradient-inl.h"
#include "src/row/sink.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Returns sum_c a[c] b[c]; each product is exact.
template <typename T>
HWY_INLINE double dot_in_double(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                                std::size_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> df;
  const std::size_t lanes = hn::Lanes(d);
  const auto load = [&](const T* from) HWY_ATTR { return hn::PromoteTo(d, load_floats(df, from)); };
  // Two sums, because each addition depends on the previous one.
  auto sum = hn::Zero(d), other = hn::Zero(d);
  std::size_t c = 0;
  for (; c + 2 * lanes <= count; c += 2 * lanes) {
    sum = hn::MulAdd(load(a + c), load(b + c), sum);
    other = hn::MulAdd(load(a + c + lanes), load(b + c + lanes), other);
  }
  double result = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, other)));
  for (; c < count; ++c) {
    result += static_cast<double>(to_float(a[c])) * static_cast<double>(to_float(b[c]));
  }
  return result;
}

// Returns do.output, or that with the output's tangent, in double because its rounding error would
// enter every weight of the row.
HWY_INLINE double row_product(const QueryTile& tile, std::size_t row, const ConstTensor& output) {
  const ConstTensor& d_output = tile.call.gradient.d_output;
  const std::int64_t query = tile.query(row);
  const auto product = [&]<typename T>(const T*) {
    const T* of_row = static_cast<const T*>(output.data) + tile.batch * output.strides[0] +
                      tile.head * output.strides[1] + query * output.strides[2];
    return dot_in_double(of_row, reinterpret_cast<const T*>(tile.d_output.row(row)),
                         tile.d_output.columns());
  };
  if (output.type == d_output.type && output.strides[3] == 1) {
    if (output.type == DType::f32) return product(static_cast<const float*>(nullptr));
    if (output.type == DType::bf16) return product(static_cast<const BFloat16*>(nullptr));
  }
  return output_product(output, d_output, tile.batch, tile.head, query);
}

// With a sink of weight 1 - w, output = w sum_j p_j v_j. The product rule gives dz_j = p_j w
// (do.v_j - do.output), so the sink enters as the factor non_sink_weight on do alone.
HWY_INLINE RowGradient row_gradient(const QueryTile& tile, std::size_t row,
                                    const StatisticGradients& statistics, float& non_sink) {
  const BackwardCall& call = tile.call;
  const AttentionGradientInput& g = call.gradient;
  const std::int64_t batch = tile.batch, head = tile.head, query = tile.query(row);
  const float lse = g.statistics.lse(batch, head, query);
  non_sink = 0;
  // The row sees no key, so its upstream gradients are ignored, even NaN. (If it sees keys with
  // logits all -inf, this lse makes their gradients NaN, like the output.)
  if (lse == -std::numeric_limits<float>::infinity()) return {.lse_log2 = lse};
  const auto& sink = call.options.sinks;
  const double share = sink ? non_sink_weight(lse, sink(head)) : 1.0;
  non_sink = static_cast<float>(share);
  const double mean_dp = g.d_output ? share * row_product(tile, row, g.output) : 0.0;
  RowGradient result{.lse_log2 = static_cast<float>(kLog2E * static_cast<double>(lse)),
                     .base = -static_cast<float>(mean_dp)};
  statistics.add(batch, head, query, result);
  if (statistics.terms() & kDistances) {
    result.own_key =
        row_view(call.options.mask, batch, query, call.input.q.extents[2], call.plan.keys).own_key;
  }
  return result;
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
