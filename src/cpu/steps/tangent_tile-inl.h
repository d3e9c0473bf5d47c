// Tangents through the softmax of a row tile: weights, their tangents, and the rows' sums.

#if defined(ISENTROPE_TANGENT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TANGENT_TILE_INL_H_
#undef ISENTROPE_TANGENT_TILE_INL_H_
#else
#define ISENTROPE_TANGENT_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "isentrope/statistics.h"
#include "src/cpu/steps/exp-inl.h"
#include "src/cpu/steps/row_tile_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// The rows of a row tile in the tangent pass: results of the forward pass, and sums over
// the keys so far. With p the weights, z' the tangents of logits and u = ln p_j + entropy, the
// tangents of all statistics are sums of p_j z'_j times the statistic's slope.
struct TangentRows {
  HWY_ALIGN float lse_log2[kStateRows], entropy[kStateRows], distance[kStateRows];
  // sum p z', and the same with a factor u, u^2, p and |i - j| - distance.
  // excess is sum p times the last, which is not 0 because the distance has been rounded.
  HWY_ALIGN double mean[kStateRows], by_u[kStateRows], by_square[kStateRows], by_weight[kStateRows],
      by_distance[kStateRows], excess[kStateRows];
  // The first largest logit and its tangent.
  HWY_ALIGN float largest[kStateRows], of_largest[kStateRows];
  std::int64_t support[kStateRows];

  void clear() {
    for (float* results : {lse_log2, entropy, distance, of_largest})
      std::fill_n(results, kStateRows, 0.0f);
    for (double* sums : {mean, by_u, by_square, by_weight, by_distance, excess})
      std::fill_n(sums, kStateRows, 0.0);
    std::fill_n(largest, kStateRows, -std::numeric_limits<float>::infinity());
    std::fill_n(support, kStateRows, std::int64_t{0});
  }
};

// In:   logits[key][row] in log2, -inf if masked; tangents[key][row], 0 if masked.
// Out:  p and p z' in place, and the rows' sums.
// own_keys: key at the position of each row, from the tile's first key; for kDistance only.
// Sums within a tile, of up to 256 keys, are float; those over tiles double.
template <bool kMoments, bool kDistance, bool kLargest>
void tangent_tile(std::size_t rows, std::size_t keys, const float* own_keys, TangentRows& state,
                  float* HWY_RESTRICT logits, float* HWY_RESTRICT tangents) {
  const Floats d;
  const std::size_t width = panel_width(), lanes = hn::Lanes(d);
  for (std::size_t r = 0; r < rows; r += lanes) {
    const auto lse = hn::Load(d, state.lse_log2 + r);
    auto mean = hn::Zero(d);
    [[maybe_unused]] auto by_u = hn::Zero(d), by_square = by_u, by_weight = by_u,
                          by_distance = by_u, excess = by_u;
    [[maybe_unused]] auto largest = hn::Load(d, state.largest + r),
                          of_largest = hn::Load(d, state.of_largest + r);
    for (std::size_t j = 0; j < keys; ++j) {
      float* logit = logits + j * width + r;
      float* tangent = tangents + j * width + r;
      const auto z = hn::Load(d, logit), dz = hn::Load(d, tangent);
      if constexpr (kLargest) {
        const auto is_larger = hn::Gt(z, largest);
        largest = hn::IfThenElse(is_larger, z, largest);
        of_largest = hn::IfThenElse(is_larger, dz, of_largest);
      }
      // No logit exceeds its row's lse, except by rounding: by hundreds if logits are 1e9.
      auto t = hn::Sub(z, lse);
      t = hn::IfThenZeroElse(hn::Gt(t, hn::Zero(d)), t);
      const auto p = weight_of(t), change = hn::Mul(p, dz);
      mean = hn::Add(mean, change);
      if constexpr (kMoments) {
        const auto u =
            hn::MulAdd(t, hn::Set(d, static_cast<float>(kLn2)), hn::Load(d, state.entropy + r));
        const auto u_change = hn::Mul(u, change);
        by_u = hn::Add(by_u, u_change);
        by_square = hn::MulAdd(u, u_change, by_square);
        by_weight = hn::MulAdd(p, change, by_weight);
      }
      if constexpr (kDistance) {
        const auto away = hn::Sub(hn::Load(d, own_keys + r), hn::Set(d, static_cast<float>(j)));
        const auto more = hn::Sub(hn::Abs(away), hn::Load(d, state.distance + r));
        by_distance = hn::MulAdd(more, change, by_distance);
        excess = hn::MulAdd(more, p, excess);
      }
      hn::Store(p, d, logit);
      hn::Store(change, d, tangent);
    }
    const auto add = [&](hn::Vec<Floats> sum, double* to) HWY_ATTR {
      HWY_ALIGN float sums[hn::MaxLanes(Floats())];
      hn::Store(sum, d, sums);
      for (std::size_t i = 0; i < lanes; ++i) to[r + i] += static_cast<double>(sums[i]);
    };
    add(mean, state.mean);
    if constexpr (kMoments) {
      add(by_u, state.by_u);
      add(by_square, state.by_square);
      add(by_weight, state.by_weight);
    }
    if constexpr (kDistance) {
      add(by_distance, state.by_distance);
      add(excess, state.excess);
    }
    if constexpr (kLargest) {
      hn::Store(largest, d, state.largest + r);
      hn::Store(of_largest, d, state.of_largest + r);
    }
  }
}

// Instance of tangent_tile() for the requested statistics.
using TangentTile = void (*)(std::size_t, std::size_t, const float*, TangentRows&,
                             float* HWY_RESTRICT, float* HWY_RESTRICT);
HWY_INLINE TangentTile tangent_tile_for(const RowStatistics& wanted) {
  unsigned terms = kNoGradient;
  for_each_statistic([&](const Statistic& statistic,
                         const auto& view) { terms |= view ? statistic.gradient : 0u; },
                     wanted);
  if (terms & kDistances) return tangent_tile<true, true, true>;
  return terms & (kMoments | kLargestKey) ? tangent_tile<true, false, true>
                                          : tangent_tile<false, false, false>;
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
