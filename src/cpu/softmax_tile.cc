// Softmax of a tile, for every set of sums and every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/softmax_tile.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <cstddef>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/steps/exp-inl.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"
#include "src/cpu/steps/softmax_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

HWY_INLINE hn::Vec<Floats> max_lanes_of(const float* logits, std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto max = hn::Load(d, logits);
  for (std::size_t j = lanes; j < columns; j += lanes) max = hn::Max(max, hn::Load(d, logits + j));
  return max;
}

// Returns the maxima over the keys of a transposed tile, for a vector of rows.
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

// Sums over a row's weights w = 2^t, one vector each. `prefixes` sums the running sums of w, which
// is sum_j w_j (count - j). That is one addition; sum_j w_j |i - j| would take three operations.
struct LaneSums {
  // GCC's implicit constructor lacks the target attribute, so NEON's vectors would not be inlined.
  HWY_INLINE LaneSums() {}
  hn::Vec<Floats> s0 = hn::Zero(Floats()), s1 = s0, s1_prime = s0, s2 = s0, prefixes = s0;
};

// Replaces a vector of logits by weights.
template <unsigned kSums>
HWY_INLINE void weigh(float* HWY_RESTRICT logits, hn::Vec<Floats> origin, LaneSums& sums) {
  const Floats d;
  auto t = hn::Sub(hn::Load(d, logits), origin);
  const auto w = weight_of(t);
  hn::Store(w, d, logits);
  sums.s0 = hn::Add(sums.s0, w);
  if constexpr (kSums & kS1Prime) {
    const auto wt = hn::Mul(w, t);
    sums.s1 = hn::Add(sums.s1, wt);
    sums.s1_prime = hn::MulAdd(wt, t, sums.s1_prime);
  } else if constexpr (kSums & kS1) {
    sums.s1 = hn::MulAdd(w, t, sums.s1);
  }
  if constexpr (kSums & kS2) sums.s2 = hn::MulAdd(w, w, sums.s2);
  if constexpr (kSums & kDistance) sums.prefixes = hn::Add(sums.prefixes, sums.s0);
}

// Returns sum_j w_j |own_key - j| of one row with contiguous weights.
HWY_INLINE double distances_of_row(const float* weights, std::size_t columns, double own_key) {
  const Floats d;
  const auto own_keys = hn::Set(d, static_cast<float>(own_key));
  auto sum = hn::Zero(d);
  for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
    const auto away = hn::Abs(hn::Sub(own_keys, hn::Iota(d, static_cast<float>(j))));
    sum = hn::MulAdd(hn::Load(d, weights + j), away, sum);
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// For a vector of rows of a transposed tile: records in `at_own_key` the prefixes when a row's own
// key is reached, at the latest after the last key. `own_keys` count from the tile's first key.
template <unsigned kSums>
HWY_INLINE LaneSums weigh_and_split(float* HWY_RESTRICT tile, std::size_t keys,
                                    hn::Vec<Floats> origin, hn::Vec<Floats> own_keys,
                                    hn::Vec<Floats>& at_own_key) {
  const Floats d;
  const std::size_t width = panel_width();
  const auto first = static_cast<std::size_t>(hn::GetLane(hn::MinOfLanes(d, own_keys))),
             last = static_cast<std::size_t>(hn::GetLane(hn::MaxOfLanes(d, own_keys)));
  LaneSums sums;
  std::size_t j = 0;
  at_own_key = hn::Zero(d);
  for (; j < first; ++j) weigh<kSums>(tile + j * width, origin, sums);
  for (; j < HWY_MIN(last + 1, keys); ++j) {
    const auto is_own = hn::Eq(own_keys, hn::Set(d, static_cast<float>(j)));
    at_own_key = hn::IfThenElse(is_own, sums.prefixes, at_own_key);
    weigh<kSums>(tile + j * width, origin, sums);
  }
  for (; j < keys; ++j) weigh<kSums>(tile + j * width, origin, sums);
  at_own_key = hn::IfThenElse(hn::Eq(own_keys, hn::Set(d, static_cast<float>(keys))), sums.prefixes,
                              at_own_key);
  return sums;
}

// Returns the own keys of rows r, r + 1, ..., clamped to the tile.
HWY_INLINE hn::Vec<Floats> own_keys_within(const RowPositions& positions, std::size_t r,
                                           std::size_t keys) {
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  HWY_ALIGN float clamped[hn::MaxLanes(Floats())];
  for (std::size_t i = 0; i < hn::Lanes(Floats()); i += hn::Lanes(d)) {
    const auto own_keys =
        hn::Sub(hn::LoadU(d, positions.own_keys + r + i), hn::Set(d, positions.first));
    hn::Store(
        hn::DemoteTo(df, hn::Clamp(own_keys, hn::Zero(d), hn::Set(d, static_cast<double>(keys)))),
        df, clamped + i);
  }
  return hn::Load(Floats(), clamped);
}

// With P(j) for the prefixes before key j, and i for the row's own position,
//   sum_j w_j |i - j| = 2 P(min(max(i, 0), count)) - P(count) + |count - i| s0.
HWY_INLINE void add_distances(const LaneSums& sums, hn::Vec<Floats> at_own_key, double end,
                              const double* own_keys, double* HWY_RESTRICT distances) {
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  HWY_ALIGN float s0[hn::MaxLanes(Floats())], split[hn::MaxLanes(Floats())];
  hn::Store(sums.s0, Floats(), s0);
  // Doubling is exact, and the difference fits in a float.
  hn::Store(hn::Sub(hn::Add(at_own_key, at_own_key), sums.prefixes), Floats(), split);
  for (std::size_t i = 0; i < hn::Lanes(Floats()); i += hn::Lanes(d)) {
    const auto away = hn::Abs(hn::Sub(hn::Set(d, end), hn::LoadU(d, own_keys + i)));
    const auto more = hn::MulAdd(away, hn::PromoteTo(d, hn::Load(df, s0 + i)),
                                 hn::PromoteTo(d, hn::Load(df, split + i)));
    const auto so_far = hn::Load(d, distances + i);
    hn::Store(hn::Add(so_far, hn::Max(more, hn::Zero(d))), d, distances + i);
  }
}

// Two passes over a tile in L1: a running maximum would be a serial max-exp-rescale chain.
template <unsigned kSums>
bool softmax_of_rows(float* HWY_RESTRICT tile, std::size_t stride, std::size_t rows,
                     std::size_t columns, const RowPositions& positions, RowTileState& state,
                     float* HWY_RESTRICT rescale) {
  HWY_ALIGN float max[kStateRows], origin[kStateRows];
  const std::size_t padded_rows = round_up(rows, HWY_MAX(kRowsAtOnce, hn::Lanes(Doubles())));
  for (std::size_t group = 0; group < padded_rows; group += kRowsAtOnce) {
    hn::Vec<Floats> of_row[kRowsAtOnce];
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
      of_row[i] = group + i < rows ? max_lanes_of(tile + (group + i) * stride, columns)
                                   : hn::Set(Floats(), -std::numeric_limits<float>::infinity());
    }
    reduce_four(of_row, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); }, max + group);
  }
  const bool max_grew = raise(max, padded_rows, state, origin, rescale);
  for (std::size_t group = 0; group < rows; group += kRowsAtOnce) {
    hn::Vec<Floats> s0[kRowsAtOnce], s1[kRowsAtOnce], s1_prime[kRowsAtOnce], s2[kRowsAtOnce];
    const std::size_t count = HWY_MIN(kRowsAtOnce, rows - group);
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
      const auto from = hn::Set(Floats(), origin[group + i]);
      LaneSums sums;
      for (std::size_t j = 0; i < count && j < columns; j += hn::Lanes(Floats()))
        weigh<kSums & ~kDistance>(tile + (group + i) * stride + j, from, sums);
      s0[i] = sums.s0, s1[i] = sums.s1, s1_prime[i] = sums.s1_prime, s2[i] = sums.s2;
    }
    add_sums(s0, state.s0 + group);
    if constexpr (kSums & kS1) add_sums(s1, state.s1 + group);
    if constexpr (kSums & kS1Prime) add_sums(s1_prime, state.s1_prime + group);
    if constexpr (kSums & kS2) add_sums(s2, state.s2 + group);
    if constexpr (kSums & kDistance) {
      for (std::size_t r = group; r < group + count; ++r) {
        const double own_key = (positions.own_keys[r] - positions.first) / positions.step;
        state.s_distance[r] +=
            positions.step * distances_of_row(tile + r * stride, columns, own_key);
      }
    }
  }
  return max_grew;
}

template <unsigned kSums>
bool softmax_transposed(float* HWY_RESTRICT tile, std::size_t rows, std::size_t keys,
                        const RowPositions& positions, RowTileState& state,
                        float* HWY_RESTRICT rescale) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), width = panel_width();
  // Maxima of all rows are computed first, so that states are updated in vectors of rows.
  HWY_ALIGN float max[kStateRows], origin[kStateRows];
  for (std::size_t r = 0; r < rows; r += lanes)
    hn::Store(max_over_keys(tile + r, keys), d, max + r);
  const std::size_t padded_rows = round_up(rows, lanes);
  const bool max_grew = raise(max, padded_rows, state, origin, rescale);
  for (std::size_t r = 0; r < rows; r += lanes) {
    const auto from = hn::Load(d, origin + r);
    LaneSums sums;
    if constexpr (kSums & kDistance) {
      hn::Vec<Floats> at_own_key;
      sums = weigh_and_split<kSums>(tile + r, keys, from, own_keys_within(positions, r, keys),
                                    at_own_key);
      add_distances(sums, at_own_key, positions.first + static_cast<double>(keys),
                    positions.own_keys + r, state.s_distance + r);
    } else {
      for (std::size_t j = 0; j < keys; ++j) weigh<kSums>(tile + r + j * width, from, sums);
    }
    add_lanes(sums.s0, state.s0 + r);
    if constexpr (kSums & kS1) add_lanes(sums.s1, state.s1 + r);
    if constexpr (kSums & kS1Prime) add_lanes(sums.s1_prime, state.s1_prime + r);
    if constexpr (kSums & kS2) add_lanes(sums.s2, state.s2 + r);
  }
  return max_grew;
}

// One instance for each set of sums: a branch in the loop would slow calls without statistics.
template <unsigned kSums>
constexpr Softmax kSoftmax = {softmax_of_rows<kSums>, softmax_transposed<kSums>};

}  // namespace

Softmax softmax_for(unsigned sums) {
  static constexpr Softmax kAll[] = {
      kSoftmax<0>,  kSoftmax<1>,  kSoftmax<3>,  kSoftmax<3>, kSoftmax<4>,  kSoftmax<5>,
      kSoftmax<7>,  kSoftmax<7>,  kSoftmax<8>,  kSoftmax<9>, kSoftmax<11>, kSoftmax<11>,
      kSoftmax<12>, kSoftmax<13>, kSoftmax<15>, kSoftmax<15>};  // s1_prime implies s1
  return kAll[sums];
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
