// Softmax over one tile of logits (in log2): unnormalised weights and the rows' new states out.
//
// The tile of a row tile is transposed, [key][row]: vectors then run along rows, each of which has
// a lane to itself. A decode step has too few rows to fill them; its tile is [row][key].
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_SOFTMAX_TILE_INL_H_
#undef ISENTROPE_SOFTMAX_TILE_INL_H_
#else
#define ISENTROPE_SOFTMAX_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "isentrope/attention.h"
#include "src/cpu/steps/exp-inl.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Replaces logits outside [begin, end) by -inf, by selection: they may be NaN.
HWY_INLINE void mask_outside(float* logits, std::size_t begin, std::size_t end,
                             std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto masked = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t j = 0; j < columns; j += lanes) {
    if (j >= begin && j + lanes <= end) continue;
    const auto before_end = hn::FirstN(d, end > j ? end - j : 0);
    const auto before_begin = hn::FirstN(d, begin > j ? begin - j : 0);
    const auto admitted = hn::AndNot(before_begin, before_end);
    hn::Store(hn::IfThenElse(admitted, hn::Load(d, logits + j), masked), d, logits + j);
  }
}

// The same of a transposed tile, whose row r sees keys [begin[r], end[r]) of its own; both have
// room for a panel's width.
HWY_INLINE void mask_outside(float* tile, const std::int32_t* begin, const std::int32_t* end,
                             std::size_t rows, std::size_t keys) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const std::size_t width = panel_width();
  const auto all_from = static_cast<std::size_t>(*std::max_element(begin, begin + rows));
  const auto all_to = static_cast<std::size_t>(*std::min_element(end, end + rows));
  const auto masked = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t r = 0; r < rows; r += hn::Lanes(d)) {
    const auto first = hn::Load(di, begin + r), last = hn::Load(di, end + r);
    for (std::size_t j = 0; j < keys; ++j) {
      if (j >= all_from && j < all_to) j = all_to;
      if (j >= keys) break;
      const auto key = hn::Set(di, static_cast<std::int32_t>(j));
      const auto sees = hn::AndNot(hn::Lt(key, first), hn::Lt(key, last));
      float* logits = tile + j * width + r;
      hn::Store(hn::IfThenElse(hn::RebindMask(d, sees), hn::Load(d, logits), masked), d, logits);
    }
  }
}

HWY_INLINE hn::Vec<Floats> max_lanes_of(const float* logits, std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto max = hn::Load(d, logits);
  for (std::size_t j = lanes; j < columns; j += lanes) max = hn::Max(max, hn::Load(d, logits + j));
  return max;
}

// Over the keys of a transposed tile, a vector of rows.
HWY_INLINE hn::Vec<Floats> max_over_keys(const float* logits, std::size_t keys) {
  const Floats d;
  const std::size_t width = panel_width();
  auto max = hn::Load(d, logits), other = max;
  std::size_t j = 1;
  for (; j + 2 <= keys; j += 2) {
    max = hn::Max(max, hn::Load(d, logits + j * width));
    other = hn::Max(other, hn::Load(d, logits + (j + 1) * width));
  }
  if (j < keys) max = hn::Max(max, hn::Load(d, logits + j * width));
  return hn::Max(max, other);
}

// Sums over a row's weights w = 2^t, a vector of lanes each. prefixes: of the running sums of w,
// which is sum_j w_j (count - j) and costs an addition where sum_j w_j |i - j| would take three
// operations.
struct WeightSums {
  // Written out, for GCC gives what it writes itself none of the instruction set's attributes, and
  // NEON's vectors are then not inlined.
  HWY_INLINE WeightSums() {}
  hn::Vec<Floats> s0[kRowsAtOnce], s1[kRowsAtOnce], s1_prime[kRowsAtOnce], s2[kRowsAtOnce],
      prefixes[kRowsAtOnce];
};

// Logits become weights, in place: of row i of a group, a vector every `step` floats.
template <unsigned kSums>
HWY_INLINE void weigh(float* HWY_RESTRICT logits, std::size_t count, std::size_t step,
                      hn::Vec<Floats> origin, std::size_t i, WeightSums& sums) {
  const Floats d;
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s1_prime = hn::Zero(d), s2 = hn::Zero(d);
  auto prefixes = hn::Zero(d);
  for (std::size_t j = 0; j < count; j += step) {
    auto t = hn::Sub(hn::Load(d, logits + j), origin);
    const auto w = weight_of(t);
    hn::Store(w, d, logits + j);
    s0 = hn::Add(s0, w);
    if constexpr (kSums & kS1Prime) {
      const auto wt = hn::Mul(w, t);
      s1 = hn::Add(s1, wt);
      s1_prime = hn::MulAdd(wt, t, s1_prime);
    } else if constexpr (kSums & kS1) {
      s1 = hn::MulAdd(w, t, s1);
    }
    if constexpr (kSums & kS2) s2 = hn::MulAdd(w, w, s2);
    if constexpr (kSums & kDistance) prefixes = hn::Add(prefixes, s0);
  }
  sums.s0[i] = s0;
  sums.s1[i] = s1;
  sums.s1_prime[i] = s1_prime;
  sums.s2[i] = s2;
  sums.prefixes[i] = prefixes;
}

// sum_j w_j |own_key - j| of one row, whose weights lie one after the other.
HWY_INLINE double distances_of_row(const float* weights, std::size_t columns, double own_key) {
  const Floats d;
  const auto own = hn::Set(d, static_cast<float>(own_key));
  auto sum = hn::Zero(d);
  for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
    const auto away = hn::Abs(hn::Sub(own, hn::Iota(d, static_cast<float>(j))));
    sum = hn::MulAdd(hn::Load(d, weights + j), away, sum);
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// The same of rows of a transposed tile, a lane each.
HWY_INLINE hn::Vec<Floats> distances_of_lanes(const float* weights, std::size_t keys,
                                              const double* own_keys) {
  const Floats d;
  HWY_ALIGN float own[hn::MaxLanes(Floats())];
  std::copy_n(own_keys, hn::Lanes(d), own);
  auto sum = hn::Zero(d), away = hn::Load(d, own);
  for (std::size_t j = 0; j < keys; ++j, away = hn::Sub(away, hn::Set(d, 1.0f)))
    sum = hn::MulAdd(hn::Load(d, weights + j * panel_width()), hn::Abs(away), sum);
  return sum;
}

// Of the tile's rows r, r + 1, ..., a lane each. Where all keys of a row lie on one side of its
// position i, sum_j w_j |i - j| = |sum_j w_j (count - j) + (i - count) s0|.
HWY_INLINE void add_distances(const float* weights, std::size_t rows, std::size_t keys,
                              const WeightSums& sums, const RowPositions& positions, std::size_t r,
                              RowTileState& state) {
  HWY_ALIGN float s0[hn::MaxLanes(Floats())], prefixes[hn::MaxLanes(Floats())],
      both_sides[hn::MaxLanes(Floats())] = {};
  const std::size_t count = HWY_MIN(rows - r, hn::Lanes(Floats()));
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) any = any || positions.has_both_sides(r + i);
  if (any)
    hn::Store(distances_of_lanes(weights, keys, positions.own_key + r), Floats(), both_sides);
  hn::Store(sums.s0[0], Floats(), s0);
  hn::Store(sums.prefixes[0], Floats(), prefixes);
  for (std::size_t i = 0; i < count; ++i) {
    const double before = positions.own_key[r + i] - static_cast<double>(keys);
    const double one_side = static_cast<double>(prefixes[i]) + before * static_cast<double>(s0[i]);
    state.s_distance[r + i] +=
        positions.has_both_sides(r + i) ? static_cast<double>(both_sides[i]) : std::abs(one_side);
  }
}

// A decode step's. In: tile[r][0, columns) logits, those outside a row's range -inf; columns a
// multiple of the lanes. Out: weights 2^(z - m) in place, 0 where masked, with m the largest logit
// of the row so far, and the rows' states, support apart. Returns whether any m grew: rescale[r] is
// then the factor 2^(m_before - m) for the row's value sums.
//
// Two passes over a tile that is in L1: carrying the running maximum instead would put a serial
// max-exp-rescale chain on every vector.
template <unsigned kSums>
bool softmax_of_rows(float* HWY_RESTRICT tile, std::size_t stride, std::size_t rows,
                     std::size_t columns, const RowPositions& positions, RowTileState& state,
                     float* HWY_RESTRICT rescale) {
  HWY_ALIGN float max[kStateRows], origin[kStateRows];
  const std::size_t whole = round_up(rows, HWY_MAX(kRowsAtOnce, hn::Lanes(Doubles())));
  for (std::size_t group = 0; group < whole; group += kRowsAtOnce) {
    hn::Vec<Floats> of_row[kRowsAtOnce];
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
      of_row[i] = group + i < rows ? max_lanes_of(tile + (group + i) * stride, columns)
                                   : hn::Set(Floats(), -std::numeric_limits<float>::infinity());
    }
    reduce_four(of_row, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); }, max + group);
  }
  const bool moved = raise(max, whole, state, origin, rescale);
  for (std::size_t group = 0; group < rows; group += kRowsAtOnce) {
    WeightSums sums;
    const std::size_t count = HWY_MIN(kRowsAtOnce, rows - group);
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
      weigh<kSums>(tile + HWY_MIN(group + i, rows) * stride, i < count ? columns : 0,
                   hn::Lanes(Floats()), hn::Set(Floats(), origin[group + i]), i, sums);
    }
    add_sums(sums.s0, state.s0 + group);
    if constexpr (kSums & kS1) add_sums(sums.s1, state.s1 + group);
    if constexpr (kSums & kS1Prime) add_sums(sums.s1_prime, state.s1_prime + group);
    if constexpr (kSums & kS2) add_sums(sums.s2, state.s2 + group);
    if constexpr (kSums & kDistance) {
      for (std::size_t r = group; r < group + count; ++r)
        state.s_distance[r] += distances_of_row(tile + r * stride, columns, positions.own_key[r]);
    }
  }
  return moved;
}

// The same of a transposed tile: tile[key][row], and any number of keys.
template <unsigned kSums>
bool softmax_transposed(float* HWY_RESTRICT tile, std::size_t rows, std::size_t keys,
                        const RowPositions& positions, RowTileState& state,
                        float* HWY_RESTRICT rescale) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), width = panel_width();
  // Maxima of all rows come first, so that the states are raised in vectors of rows.
  HWY_ALIGN float max[kStateRows], origin[kStateRows];
  for (std::size_t r = 0; r < rows; r += lanes)
    hn::Store(max_over_keys(tile + r, keys), d, max + r);
  const std::size_t whole = round_up(rows, lanes);
  const bool moved = raise(max, whole, state, origin, rescale);
  for (std::size_t r = 0; r < rows; r += lanes) {
    WeightSums sums;
    weigh<kSums>(tile + r, keys * width, width, hn::Load(d, origin + r), 0, sums);
    add_lanes(sums.s0[0], state.s0 + r);
    if constexpr (kSums & kS1) add_lanes(sums.s1[0], state.s1 + r);
    if constexpr (kSums & kS1Prime) add_lanes(sums.s1_prime[0], state.s1_prime + r);
    if constexpr (kSums & kS2) add_lanes(sums.s2[0], state.s2 + r);
    if constexpr (kSums & kDistance) add_distances(tile + r, rows, keys, sums, positions, r, state);
  }
  return moved;
}

// Both loops for a set of sums beside s0: what nobody asked for is not compiled into them.
struct Softmax {
  bool (*of_rows)(float* HWY_RESTRICT, std::size_t, std::size_t, std::size_t, const RowPositions&,
                  RowTileState&, float* HWY_RESTRICT);
  bool (*transposed)(float* HWY_RESTRICT, std::size_t, std::size_t, const RowPositions&,
                     RowTileState&, float* HWY_RESTRICT);
};

// An instance for every set of sums: a branch within the loop would cost those who ask for none.
template <unsigned kSums>
inline constexpr Softmax kSoftmax = {softmax_of_rows<kSums>, softmax_transposed<kSums>};

// What a call's statistics need.
inline unsigned weight_sums_of(const RowStatistics& wanted) {
  unsigned sums = kOnlyS0;
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) { sums |= view ? statistic.sums : 0u; },
      wanted);
  return sums;
}

HWY_INLINE Softmax softmax_for(unsigned sums) {
  static constexpr Softmax kAll[] = {
      kSoftmax<0>,  kSoftmax<1>,  kSoftmax<3>,  kSoftmax<3>, kSoftmax<4>,  kSoftmax<5>,
      kSoftmax<7>,  kSoftmax<7>,  kSoftmax<8>,  kSoftmax<9>, kSoftmax<11>, kSoftmax<11>,
      kSoftmax<12>, kSoftmax<13>, kSoftmax<15>, kSoftmax<15>};  // s1_prime brings s1
  return kAll[sums];
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
