// Masks a tile: logits of keys that a row does not see become -inf, of weight 0, and their tangents
// 0.

#if defined(ISENTROPE_MASK_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_MASK_TILE_INL_H_
#undef ISENTROPE_MASK_TILE_INL_H_
#else
#define ISENTROPE_MASK_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/steps/row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

inline constexpr float kMaskedLogit = -std::numeric_limits<float>::infinity();

// Replaces logits outside [begin, end) by -inf, by selection because they may be NaN.
HWY_INLINE void mask_outside(float* logits, std::size_t begin, std::size_t end,
                             std::size_t columns) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto masked = hn::Set(d, kMaskedLogit);
  for (std::size_t j = 0; j < columns; j += lanes) {
    if (j >= begin && j + lanes <= end) continue;
    const auto before_end = hn::FirstN(d, end > j ? end - j : 0);
    const auto before_begin = hn::FirstN(d, begin > j ? begin - j : 0);
    const auto seen = hn::AndNot(before_begin, before_end);
    hn::Store(hn::IfThenElse(seen, hn::Load(d, logits + j), masked), d, logits + j);
  }
}

// Same for a transposed tile, whose row r sees keys [begin[r], end[r]): other numbers become `to`.
// Both arrays have room for a panel's width.
HWY_INLINE void mask_outside(float* tile, const std::int32_t* begin, const std::int32_t* end,
                             std::size_t rows, std::size_t keys, float to) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const std::size_t width = panel_width();
  const auto all_from = static_cast<std::size_t>(*std::max_element(begin, begin + rows));
  const auto all_to = static_cast<std::size_t>(*std::min_element(end, end + rows));
  const auto masked = hn::Set(d, to);
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

// Replaces numbers of keys that a dilated row skips: it sees every stride-th key from begin[r] on.
HWY_INLINE void mask_between(float* tile, const std::int32_t* begin, std::size_t stride,
                             std::size_t rows, std::size_t keys, float to) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const std::size_t width = panel_width();
  const auto step = static_cast<std::int32_t>(HWY_MIN(stride, kBlockKeys));
  const auto masked = hn::Set(d, to);
  const auto one = hn::Set(di, 1), last = hn::Set(di, step);
  for (std::size_t r = 0; r < rows; r += hn::Lanes(d)) {
    // Distance in keys to the next key that each row sees.
    HWY_ALIGN std::int32_t next[hn::MaxLanes(Floats())];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) next[i] = begin[r + i] % step;
    auto away = hn::Load(di, next);
    for (std::size_t j = 0; j < keys; ++j) {
      const auto sees = hn::Eq(away, hn::Zero(di));
      float* logits = tile + j * width + r;
      hn::Store(hn::IfThenElse(hn::RebindMask(d, sees), hn::Load(d, logits), masked), d, logits);
      away = hn::Sub(hn::IfThenElse(sees, last, away), one);
    }
  }
}

// Replaces the numbers of all keys that the rows' ranges hide.
HWY_INLINE void mask_ranges(const RowTile& tile, float* numbers, float to) {
  const std::size_t first = tile.first, rows = tile.rows;
  if (!tile.ranges.ragged && tile.ranges.first == first) return;
  HWY_ALIGN std::int32_t begin[kStateRows] = {}, end[kStateRows] = {};
  for (std::size_t r = 0; r < rows; ++r) {
    begin[r] = static_cast<std::int32_t>(tile.ranges.begin[r] - first);
    end[r] = static_cast<std::int32_t>(tile.ranges.end[r] - first);
  }
  mask_outside(numbers, begin, end, rows, tile.keys(), to);
  if (tile.ranges.stride > 1)
    mask_between(numbers, begin, tile.ranges.stride, rows, tile.keys(), to);
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
