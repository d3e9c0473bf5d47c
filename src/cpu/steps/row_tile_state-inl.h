// States of a row tile as arrays, so that vectors process several rows at once. Row by row,
// horizontal sums, merge and logarithm took a fifth of the forward pass at n = 64.

#if defined(ISENTROPE_ROW_TILE_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_ROW_TILE_STATE_INL_H_
#undef ISENTROPE_ROW_TILE_STATE_INL_H_
#else
#define ISENTROPE_ROW_TILE_STATE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "isentrope/row_state.h"
#include "isentrope/statistics.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/steps/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

inline constexpr std::size_t kRowsAtOnce = 4;
// Maximum rows of a row tile: a panel's width, or a decode step's few rows in whole groups.
inline constexpr std::size_t kPanelRows = 2 * hn::MaxLanes(Floats());
inline constexpr std::size_t kStateRows = HWY_MAX(kPanelRows, round_up(kRegisterRows, kRowsAtOnce));
using Doubles = hn::CappedTag<double, kStateRows>;

// RowState as one array per member, with logits in log2.
struct RowTileState {
  HWY_ALIGN double max[kStateRows], s0[kStateRows], s1[kStateRows], s1_prime[kStateRows],
      s2[kStateRows], s_distance[kStateRows];
  std::int64_t support[kStateRows];

  void clear() {
    std::fill_n(max, kStateRows, -std::numeric_limits<double>::infinity());
    for (double* sums : {s0, s1, s1_prime, s2, s_distance}) std::fill_n(sums, kStateRows, 0.0);
    std::fill_n(support, kStateRows, std::int64_t{0});
  }
  // Returns whether no row has seen a key: its value sums are then undefined.
  [[nodiscard]] bool is_empty(std::size_t rows) const {
    return std::all_of(support, support + rows, [](std::int64_t keys) { return keys == 0; });
  }
  [[nodiscard]] RowState row(std::size_t r) const {
    return {kLn2 * max[r], s0[r],      kLn2 * s1[r], kLn2 * kLn2 * s1_prime[r],
            s2[r],         support[r], s_distance[r]};
  }
};

// Stores in lane i of to[0, 4) the sum (maximum, ...) over the lanes of v[i].
#if HWY_TARGET == HWY_SCALAR
template <typename Combine>
HWY_INLINE void reduce_four(const hn::Vec<Floats> v[kRowsAtOnce], const Combine&,
                            float* HWY_RESTRICT to) {
  for (std::size_t i = 0; i < kRowsAtOnce; ++i) to[i] = hn::GetLane(v[i]);
}
#else
template <typename D, typename Combine>
HWY_INLINE hn::Vec<hn::Full128<float> > combine_blocks([[maybe_unused]] D d, hn::Vec<D> v,
                                                       const Combine& combine) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return combine_blocks(half, combine(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), combine);
  }
}
template <typename Combine>
HWY_INLINE void reduce_four(const hn::Vec<Floats> v[kRowsAtOnce], const Combine& combine,
                            float* HWY_RESTRICT to) {
  const Floats d;
  const hn::Repartition<double, Floats> pairs;
  const auto v01 = combine(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const auto v23 = combine(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, v01), hn::BitCast(pairs, v23));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, v01), hn::BitCast(pairs, v23));
  const auto blocks = combine(hn::BitCast(d, low), hn::BitCast(d, high));
  hn::Store(combine_blocks(d, blocks, combine), hn::Full128<float>(), to);
}
#endif

// Raises the states' maxima to the block's. origin[r] is the new maximum, or 0 while every logit is
// -inf (-inf - -inf is NaN). Returns whether any grew: rescale[r] is then its value sums' factor.
HWY_INLINE bool raise(const float* HWY_RESTRICT block_max, std::size_t rows, RowTileState& state,
                      float* HWY_RESTRICT origin, float* HWY_RESTRICT rescale) {
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  const auto lowest = hn::Set(d, -std::numeric_limits<double>::infinity());
  bool max_grew = false;
  for (std::size_t r = 0; r < rows; r += hn::Lanes(d)) {
    const auto before = hn::Load(d, state.max + r);
    const auto max = hn::Max(before, hn::PromoteTo(d, hn::Load(df, block_max + r)));
    hn::Store(hn::DemoteTo(df, hn::IfThenZeroElse(hn::Eq(max, lowest), max)), df, origin + r);
    hn::Store(hn::Set(df, 1.0f), df, rescale + r);
    if (hn::AllTrue(d, hn::Eq(before, max))) continue;
    max_grew = true;
    hn::Store(max, d, state.max + r);
    // A state without weight has only zeros, and -inf times 0 would be NaN. Skipping powers for
    // rows that see their first keys gives 1.02 times at n = 64.
    if (hn::AllTrue(d, hn::Eq(before, lowest))) continue;
    // NaN rows become NaN by their weights: the emulated target's exp may not handle NaN.
    const auto fall = hn::Sub(before, max);
    const auto falls = hn::And(hn::Gt(before, lowest), hn::Le(fall, hn::Zero(d)));
    const auto shift = hn::IfThenElseZero(falls, fall);
    const auto factor = hn::Exp(d, hn::Mul(hn::Set(d, kLn2), shift));
    const auto s0 = hn::Load(d, state.s0 + r), s1 = hn::Load(d, state.s1 + r);
    const auto shifted = hn::MulAdd(shift, s0, s1);
    const auto s1_prime = hn::MulAdd(shift, hn::Add(s1, shifted), hn::Load(d, state.s1_prime + r));
    hn::Store(hn::DemoteTo(df, factor), df, rescale + r);
    hn::Store(hn::Mul(factor, s0), d, state.s0 + r);
    hn::Store(hn::Mul(factor, shifted), d, state.s1 + r);
    hn::Store(hn::Mul(factor, s1_prime), d, state.s1_prime + r);
    hn::Store(hn::Mul(hn::Mul(factor, factor), hn::Load(d, state.s2 + r)), d, state.s2 + r);
    hn::Store(hn::Mul(factor, hn::Load(d, state.s_distance + r)), d, state.s_distance + r);
  }
  return max_grew;
}

// Computes sums[i] += lane i of v. Up to 256 weights are summed in f32; a million keys in double.
HWY_INLINE void add_lanes(hn::Vec<Floats> v, double* HWY_RESTRICT sums) {
  HWY_ALIGN float added[hn::MaxLanes(Floats())];
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  hn::Store(v, Floats(), added);
  for (std::size_t i = 0; i < hn::Lanes(Floats()); i += hn::Lanes(d)) {
    const auto more = hn::PromoteTo(d, hn::Load(df, added + i));
    hn::Store(hn::Add(hn::Load(d, sums + i), more), d, sums + i);
  }
}

// Computes sums[0, 4) += the sums over the lanes of v[0] ... v[3].
HWY_INLINE void add_sums(const hn::Vec<Floats> v[kRowsAtOnce], double* HWY_RESTRICT sums) {
  HWY_ALIGN float added[kRowsAtOnce];
  reduce_four(v, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); }, added);
  for (std::size_t i = 0; i < kRowsAtOnce; ++i) sums[i] += static_cast<double>(added[i]);
}

// Statistics of a row tile's rows, and the factor 1 / s0 of value sums: 0 for an empty row.
struct RowColumn {
  RowColumn() {}  // not cleared: every row is written before it is read
  HWY_ALIGN float rows[kStateRows];
};
struct RowTileStats : StatisticFields<RowColumn> {
  RowColumn factor;
};

// finalize() of statistics.h for several rows; a second loop recomputes empty or non-finite ones.
HWY_INLINE void finalize_row_tile(const RowTileState& state, std::size_t rows,
                                  RowTileStats& stats) {
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  const auto one = hn::Set(d, 1.0), ln_2 = hn::Set(d, kLn2);
  for (std::size_t r = 0; r < rows; r += hn::Lanes(d)) {
    const auto store = [&](auto value, RowColumn& to)
                           HWY_ATTR { hn::Store(hn::DemoteTo(df, value), df, to.rows + r); };
    const auto s0 = hn::Load(d, state.s0 + r);
    const auto max = hn::Mul(ln_2, hn::Load(d, state.max + r));
    const auto factor = hn::Div(one, s0), log_s0 = hn::Log(d, s0), nats = hn::Mul(ln_2, factor);
    const auto mean = hn::Mul(hn::Load(d, state.s1 + r), nats);
    const auto square = hn::Mul(hn::Mul(hn::Load(d, state.s1_prime + r), nats), ln_2);
    store(hn::Add(max, log_s0), stats.lse);
    store(hn::Sub(log_s0, mean), stats.entropy);
    store(hn::Mul(hn::Mul(hn::Load(d, state.s2 + r), factor), factor), stats.collision);
    store(max, stats.max_logit);
    // A variance may not be negative, but the difference of two rounded numbers may.
    store(max_or_nan(hn::Zero(d), hn::NegMulAdd(mean, mean, square)), stats.variance);
    store(hn::Mul(hn::Load(d, state.s_distance + r), factor), stats.distance);
    store(factor, stats.max_probability);  // the largest key has weight 1
    store(factor, stats.factor);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    // The largest key has weight 1: a smaller sum, or NaN, means an empty or non-finite row.
    if (state.s0[r] >= 1) continue;
    const RowStats row = finalize(state.row(r));
    for_each_statistic(
        [&](const Statistic& statistic, RowColumn& column) {
          if (statistic.of_row) column.rows[r] = static_cast<float>(row.*statistic.of_row);
        },
        stats);
    stats.factor.rows[r] = row.support == 0 ? 0 : static_cast<float>(1 / state.s0[r]);
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
