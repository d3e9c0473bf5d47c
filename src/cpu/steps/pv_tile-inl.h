// Value sums of a row tile: sums = rescale * sums + V^T weights, transposed as its tile is.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_PV_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_PV_TILE_INL_H_
#undef ISENTROPE_PV_TILE_INL_H_
#else
#define ISENTROPE_PV_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/bf16_pairs.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/product/row_list.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// sums[column][row] and weights[key][row], a panel's width apart. Keys are those of the block.
struct ValueSums {
  std::size_t rows;         // of the row tile
  std::size_t columns;      // of the values
  std::size_t first, last;  // keys summed: those nobody sees have the weight 0
  const float* weights;     // of key `first` on
  const float* rescale;     // one factor a row
  bool empty;               // sums hold nothing yet
  float* sums;
};

HWY_INLINE void clear_sums(const ValueSums& s) {
  std::fill_n(s.sums, round_up(s.columns, panel_width()) * panel_width(), 0.0f);
}

HWY_INLINE void add_values(const ValueSums& s, const Rows& values) {
  const std::size_t width = panel_width();
  const TileProduct product{.rows = s.columns,
                            .columns = s.rows,
                            .depth = s.last - s.first,
                            .a = values.data + s.first * values.stride,
                            .a_stride = values.stride,
                            .b = s.weights,
                            .b_panel = 0,
                            .c = s.sums,
                            .c_stride = width,
                            .rescale = s.rescale};
  s.empty ? multiply<LeftColumns, Into::replace>(product)
          : multiply<LeftColumns, Into::scale>(product);
}

// The same sums in the same order, hence the same bits, where sees(row, key) alone decides which
// values that are not finite a row meets: they must not meet even a weight of 0.
template <typename Sees>
HWY_INLINE void add_seen_values(const ValueSums& s, const Rows& values, const Sees& sees) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), width = panel_width();
  HWY_ALIGN float seen[hn::MaxLanes(Floats())];
  for (std::size_t r = 0; r < s.rows; r += lanes) {
    for (std::size_t c = 0; c < s.columns; ++c) {
      auto sum = hn::Zero(d);
      for (std::size_t j = s.first; j < s.last; ++j) {
        const float value = values.data[j * values.stride + c];
        const auto weights = hn::Load(d, s.weights + (j - s.first) * width + r);
        const auto more = hn::MulAdd(hn::Set(d, value), weights, sum);
        if (std::isfinite(value)) {
          sum = more;
          continue;
        }
        for (std::size_t i = 0; i < lanes; ++i) seen[i] = r + i < s.rows && sees(r + i, j) ? 1 : 0;
        sum = hn::IfThenElse(hn::Ne(hn::Load(d, seen), hn::Zero(d)), more, sum);
      }
      float* to = s.sums + c * width + r;
      const auto rescale = hn::Load(d, s.rescale + r);
      hn::Store(s.empty ? sum : hn::MulAdd(rescale, hn::Load(d, to), sum), d, to);
    }
  }
}

// Weights and values in pairs of keys, s.first an even one: pack_row_pairs() left `pairs` of
// values in a panel.
HWY_INLINE void add_value_pairs(const ValueSums& s, const float* values, std::size_t pairs) {
  const std::size_t width = bf16::kColumns;
  if (s.empty) clear_sums(s);
  for (std::size_t column = 0; column < s.columns; column += width) {
    bf16::add_weighted({.rows = HWY_MIN(width, s.columns - column),
                        .columns = width,
                        .depth = (s.last - s.first + 1) / 2,
                        .a = values + column * pairs + s.first / 2 * width,
                        .b = s.weights,
                        .b_panel = 0,
                        .c = s.sums + column * width,
                        .c_stride = width,
                        .factors = s.rescale});
  }
}

// What pack_row_pairs() left out because it is not finite, for the rows that see it.
template <typename Sees>
HWY_INLINE void add_nonfinite_values(const ValueSums& s, const RowList& values, const Sees& sees) {
  const std::size_t width = bf16::kColumns;
  for (std::size_t j = s.first; j < s.last; ++j) {
    const std::size_t key = j - s.first;
    const auto* pairs = reinterpret_cast<const BFloat16*>(s.weights + key / 2 * width);
    for (std::size_t c = 0; c < s.columns; ++c) {
      const float value = values.at(j, static_cast<std::int64_t>(c));
      if (std::isfinite(value)) continue;
      for (std::size_t r = 0; r < s.rows; ++r) {
        if (sees(r, j)) s.sums[c * width + r] += to_float(pairs[2 * r + key % 2]) * value;
      }
    }
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
