// The last step of a row tile: value sums O = rescale * O + V^T P, as [column][row].
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
#include <optional>

#include "hwy/highway.h"
#include "src/cpu/product/f32_arithmetic-inl.h"
#include "src/cpu/product/pairs_arithmetic-inl.h"
#include "src/cpu/product/tensor_rows.h"
#include "src/cpu/steps/row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Where the sums of a row tile lie, and what becomes of those of earlier blocks.
struct ValueSums {
  float* sums;           // [column][row], a panel's width from column to column
  const float* rescale;  // a factor for each row
  bool empty;            // there are none yet, and what `sums` holds means nothing
};

// Values must not meet even a weight of 0 where they are not finite and a row does not see them.
class PvTile {
 public:
  virtual void place_values(const Operand& values) noexcept = 0;
  // weights[key][row], of the tile's keys from its first on; they may be overwritten.
  virtual void run(const RowTile& tile, float* weights, const ValueSums& to) noexcept = 0;

 protected:
  ~PvTile() = default;
};

// Written out for each arithmetic: floats look for NaN when a mask asks for it, and pairs when they
// are packed, so that what each does about it differs.
template <typename Arithmetic>
class PvTileOf;

template <>
class PvTileOf<F32> final : public PvTile {
 public:
  explicit PvTileOf(std::size_t columns)
      : columns_(columns), stride_(round_up(columns, panel_width())) {}

  Scratch::Array value_copies(std::size_t keys) { return {copies_, keys * stride_}; }

  void place_values(const Operand& values) noexcept override {
    values_ = F32::read_rows(values, stride_, copies_.data());
    count_ = values.count();
    finite_.reset();
  }

  void run(const RowTile& tile, float* weights, const ValueSums& to) noexcept override {
    // Where every row sees every key of the union, whatever a value holds belongs into every row.
    // Else a look at the block's values is taken once, and most often finds them finite.
    const bool masks = tile.ranges.ragged || tile.masks_one_by_one();
    if (masks && !finite_) finite_ = all_finite(values_, count_, columns_);
    // The tile begins at a multiple of four keys. Weights before the union's first key are 0, but
    // their values may be NaN, so the product begins at the union.
    const float* of_first = weights + (tile.ranges.first - tile.first) * panel_width();
    masks && !*finite_ ? add_seen(tile, of_first, to) : add_all(tile, of_first, to);
  }

 private:
  void add_all(const RowTile& tile, const float* weights, const ValueSums& to) const {
    const std::size_t width = panel_width();
    const TileProduct<float> product{
        .rows = columns_,
        .columns = tile.rows,
        .depth = tile.ranges.last - tile.ranges.first,
        .a = values_.data + static_cast<std::ptrdiff_t>(tile.ranges.first) * values_.stride,
        .a_stride = static_cast<std::size_t>(values_.stride),
        .b = weights,
        .b_panel = 0,
        .c = to.sums,
        .c_stride = width,
        .factors = to.rescale};
    to.empty ? multiply<LeftColumns, Into::replace>(product)
             : multiply<LeftColumns, Into::scale>(product);
  }

  // The same sums in the same order, hence the same bits, where RowTile::sees() decides which
  // values that are not finite a row meets.
  void add_seen(const RowTile& tile, const float* weights, const ValueSums& to) const {
    const Floats d;
    const std::size_t lanes = hn::Lanes(d), width = panel_width(), first = tile.ranges.first;
    // This path is for values that are not finite under a mask, which is rare: it is as exact as
    // the other, not as fast.
    HWY_ALIGN float seen[hn::MaxLanes(Floats())];
    for (std::size_t r = 0; r < tile.rows; r += lanes) {
      for (std::size_t c = 0; c < columns_; ++c) {
        auto sum = hn::Zero(d);
        for (std::size_t j = first; j < tile.ranges.last; ++j) {
          const float value = values_.data[static_cast<std::ptrdiff_t>(j) * values_.stride +
                                           static_cast<std::ptrdiff_t>(c)];
          const auto weight = hn::Load(d, weights + (j - first) * width + r);
          const auto more = hn::MulAdd(hn::Set(d, value), weight, sum);
          if (std::isfinite(value)) {
            sum = more;
            continue;
          }
          for (std::size_t i = 0; i < lanes; ++i)
            seen[i] = r + i < tile.rows && tile.sees(r + i, j) ? 1 : 0;
          sum = hn::IfThenElse(hn::Ne(hn::Load(d, seen), hn::Zero(d)), more, sum);
        }
        float* at = to.sums + c * width + r;
        const auto rescale = hn::Load(d, to.rescale + r);
        hn::Store(to.empty ? sum : hn::MulAdd(rescale, hn::Load(d, at), sum), d, at);
      }
    }
  }

  const std::size_t columns_, stride_;
  Buffer<float> copies_;     // of a block whose values cannot be read where they lie
  Strided<float> values_{};  // of this block
  std::size_t count_ = 0;
  std::optional<bool> finite_;  // once a tile asked
};

template <>
class PvTileOf<Pairs> final : public PvTile {
 public:
  PvTileOf(const Pairs& arithmetic, std::size_t columns)
      : arithmetic_(arithmetic), columns_(columns) {}

  // Pairs of keys: half as many, and one for the last of an odd number.
  Scratch::Array value_copies(std::size_t keys) {
    return {pairs_, arithmetic_.pairs_of(keys) * round_up(columns_, panel_width())};
  }

  void place_values(const Operand& values) noexcept override {
    values_ = &values;
    finite_ = arithmetic_.pack_turned(values, pairs_.data());
  }

  // NaN in a value is 0 in its pair, so tiles may begin before the union's first key.
  // Weights are rounded here, after the row states have summed them as they were.
  void run(const RowTile& tile, float* weights, const ValueSums& to) noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t width = panel_width(), panel = arithmetic_.pairs_of(values_->count()) * width;
    const std::size_t depth = arithmetic_.pairs_of(tile.keys());
    const Pair* pairs = kernels.round_tile(weights, tile.keys());
    // The dot product only adds: there is no instance that replaces, since the first block is one
    // of many.
    if (to.empty) std::fill_n(to.sums, round_up(columns_, width) * width, 0.0f);
    for (std::size_t column = 0; column < columns_; column += width) {
      const std::size_t at = column / width * panel + tile.first / 2 * width;
      kernels.add_weighted({.rows = HWY_MIN(width, columns_ - column),
                            .columns = width,
                            .depth = depth,
                            .a = pairs_.at(at, depth * width),
                            .b = pairs,
                            .b_panel = 0,
                            .c = to.sums + column * width,
                            .c_stride = width,
                            .factors = to.rescale});
    }
    if (finite_) return;
    add_nonfinite(tile, pairs, to.sums);
  }

 private:
  // What packing left out because it is not finite, for the rows that see it.
  void add_nonfinite(const RowTile& tile, const Pair* weights, float* sums) const {
    const std::size_t width = panel_width();
    for (std::size_t j = tile.first; j < tile.ranges.last; ++j) {
      const std::size_t key = j - tile.first;
      const Pair* of_key = weights + key / 2 * width;
      for (std::size_t c = 0; c < columns_; ++c) {
        const float value = values_->at(j, c);
        if (std::isfinite(value)) continue;
        for (std::size_t r = 0; r < tile.rows; ++r) {
          if (!tile.sees(r, j)) continue;
          // The rounded weight, so that a row that sees the value has one and the same weight for
          // every column.
          const float weight = float_at(arithmetic_.kernels().type, of_key + r, key % 2);
          sums[c * width + r] += weight * value;
        }
      }
    }
  }

  const Pairs arithmetic_;
  const std::size_t columns_;
  Buffer<Pair> pairs_;  // of the block's keys
  const Operand* values_ = nullptr;
  bool finite_ = true;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
