// Tangents of the gradient through the softmax, of one row of one tile.

#if defined(ISENTROPE_SECOND_ORDER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_SECOND_ORDER_TILE_INL_H_
#undef ISENTROPE_SECOND_ORDER_TILE_INL_H_
#else
#define ISENTROPE_SECOND_ORDER_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "isentrope/statistics.h"
#include "src/cpu/steps/exp-inl.h"
#include "src/cpu/steps/gradient_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Tangents of a RowGradient's coefficients. Upstream gradients are constant, so those of linear,
// quadratic, collision and d_distance are 0.
struct RowGradientTangent {
  float lse = 0, entropy = 0, base = 0;
  float non_sink = 0;  // of ln w, w the weight that a sink leaves to the keys
};

// Arrays of one row of a tile, [0, columns).
struct SecondOrderRow {
  float* HWY_RESTRICT weights;    // In: logits in log2. Out: p (c + (ln w)'), for dv.
  float* HWY_RESTRICT gradients;  // In: dp. Out: dz.
  float* HWY_RESTRICT tangents;   // In: tangents of logits. Out: those of dz.
  const float* HWY_RESTRICT dp_tangents;
};

// With c_j = z'_j - lse' the tangent of ln p_j, and slope_j = dz_j / p_j as in gradient_row(),
//
//   dz_j' = p_j [ c_j slope_j + dp_j' + base' + (linear + 2 quadratic u) u' + collision p_j c_j ]
//
// where u' = c_j + H'. Outside [begin, end) all results are 0 by selection, because masked values
// may be NaN. first_key and the template arguments are those of gradient_row().
template <bool kMoments, bool kDistance>
void second_order_row(const RowGradient& row, const RowGradientTangent& change,
                      std::int64_t first_key, std::size_t begin, std::size_t end,
                      std::size_t columns, const SecondOrderRow& of) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const bool all = begin == 0 && end == columns;
  [[maybe_unused]] const auto own_key = static_cast<float>(row.own_key - first_key);
  for (std::size_t j = 0; j < columns; j += lanes) {
    // No logit exceeds its row's lse, except by rounding: by hundreds if logits are 1e9.
    auto t = hn::Sub(hn::Load(d, of.weights + j), hn::Set(d, row.lse_log2));
    t = hn::IfThenZeroElse(hn::Gt(t, hn::Zero(d)), t);
    const auto p = weight_of(t);
    const auto c = hn::Sub(hn::Load(d, of.tangents + j), hn::Set(d, change.lse));
    auto slope = hn::Add(hn::Load(d, of.gradients + j), hn::Set(d, row.base));
    auto slope_tangent = hn::Add(hn::Load(d, of.dp_tangents + j), hn::Set(d, change.base));
    if constexpr (kMoments) {
      const auto u = hn::MulAdd(t, hn::Set(d, static_cast<float>(kLn2)), hn::Set(d, row.entropy));
      const auto quadratic_u = hn::Mul(u, hn::Set(d, row.quadratic));
      const auto by_u = hn::Add(quadratic_u, hn::Set(d, row.linear));
      const auto collision_p = hn::Mul(p, hn::Set(d, row.collision));
      slope = hn::Add(hn::MulAdd(u, by_u, slope), collision_p);
      slope_tangent = hn::MulAdd(hn::Add(c, hn::Set(d, change.entropy)), hn::Add(by_u, quadratic_u),
                                 slope_tangent);
      slope_tangent = hn::MulAdd(collision_p, c, slope_tangent);
    }
    if constexpr (kDistance) {
      // The difference comes first, because both may be a million keys.
      const auto away = hn::Sub(hn::Set(d, own_key), hn::Iota(d, static_cast<float>(j)));
      const auto excess = hn::Sub(hn::Abs(away), hn::Set(d, row.distance));
      slope = hn::MulAdd(excess, hn::Set(d, row.d_distance), slope);
    }
    auto dz = hn::Mul(p, slope);
    auto dz_tangent = hn::Mul(p, hn::MulAdd(c, slope, slope_tangent));
    auto weight = hn::Mul(p, hn::Add(c, hn::Set(d, change.non_sink)));
    if (!all) {
      const auto before_end = hn::FirstN(d, end > j ? end - j : 0);
      const auto seen = hn::AndNot(hn::FirstN(d, begin > j ? begin - j : 0), before_end);
      dz = hn::IfThenElseZero(seen, dz);
      dz_tangent = hn::IfThenElseZero(seen, dz_tangent);
      weight = hn::IfThenElseZero(seen, weight);
    }
    hn::Store(dz, d, of.gradients + j);
    hn::Store(dz_tangent, d, of.tangents + j);
    hn::Store(weight, d, of.weights + j);
  }
}

// Instance of second_order_row() for a set of GradientTerms.
using SecondOrderRowOf = void (*)(const RowGradient&, const RowGradientTangent&, std::int64_t,
                                  std::size_t, std::size_t, std::size_t, const SecondOrderRow&);
HWY_INLINE SecondOrderRowOf second_order_row_for(unsigned terms) {
  return terms & kDistances ? second_order_row<true, true>
         : terms & kMoments ? second_order_row<true, false>
                            : second_order_row<false, false>;
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
