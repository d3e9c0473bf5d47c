// Packing: from the caller's strides to the layouts the tile product reads.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_PACK_INL_H_
#undef ISENTROPE_PACK_INL_H_
#else
#define ISENTROPE_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/matrix.h"
#include "src/cpu/tile_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Rows [begin, end) of the source, transposed, in panels `width` rows wide: to[panel][column][row], each
// row times scale[row] where a scale is given. Missing rows of the last panel are 0.
HWY_INLINE void pack_transposed(const Matrix& from, std::int64_t begin, std::int64_t end, std::size_t width,
                                float* HWY_RESTRICT to, const float* scale = nullptr) {
  const auto columns = static_cast<std::size_t>(from.columns);
  for (std::int64_t first = begin; first < end; first += static_cast<std::int64_t>(width)) {
    for (std::size_t r = 0; r < width; ++r) {
      const std::int64_t row = first + static_cast<std::int64_t>(r);
      if (row >= end) {
        for (std::size_t c = 0; c < columns; ++c) to[c * width + r] = 0;
        continue;
      }
      const float* source = from.row(row);
      const float factor = scale ? scale[row] : 1;
      for (std::size_t c = 0; c < columns; ++c) {
        to[c * width + r] = factor * source[static_cast<std::int64_t>(c) * from.column_stride];
      }
    }
    to += columns * width;
  }
}

// to[0, count) = factor * from[0, count); returns 0 if all are finite and NaN otherwise.
HWY_INLINE float scale_row(const float* HWY_RESTRICT from, std::int64_t stride, std::size_t count,
                           float factor, float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto poison = hn::Zero(d);  // 0 * inf and 0 * NaN are NaN
  std::size_t c = 0;
  if (stride == 1) {
    for (; c + lanes <= count; c += lanes) {
      const auto x = hn::Mul(hn::Set(d, factor), hn::LoadU(d, from + c));
      poison = hn::MulAdd(hn::Zero(d), x, poison);
      hn::Store(x, d, to + c);
    }
  }
  float tail_poison = hn::GetLane(hn::SumOfLanes(d, poison));
  for (; c < count; ++c) {
    to[c] = factor * from[static_cast<std::int64_t>(c) * stride];
    tail_poison += 0 * to[c];
  }
  return tail_poison;
}

// Rows [begin, end) of the source as they are, in panels of panel_width() columns:
// to[panel][row - begin][column], times scale[row] where a scale is given. Missing columns are 0. Returns
// whether every element is finite: where a mask hides others, a product with 0 would let them through.
HWY_INLINE bool pack_rows(const Matrix& from, std::int64_t begin, std::int64_t end, float* HWY_RESTRICT to,
                          const float* scale = nullptr) {
  const auto columns = static_cast<std::size_t>(from.columns);
  const std::size_t width = panel_width();
  float poison = 0;
  for (std::size_t first = 0; first < columns; first += width) {
    const std::size_t present = HWY_MIN(width, columns - first);
    for (std::int64_t row = begin; row < end; ++row, to += width) {
      const float* source = from.row(row) + static_cast<std::int64_t>(first) * from.column_stride;
      poison += scale_row(source, from.column_stride, present, scale ? scale[row] : 1, to);
      for (std::size_t c = present; c < width; ++c) to[c] = 0;
    }
  }
  return poison == 0;
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
