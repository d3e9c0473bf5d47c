// Last step of a row tile: value sums O = rescale * O + V^T P, as [column][row].

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

// Value sums of a row tile, and how sums of earlier blocks are updated.
struct ValueSums {
  float* sums;           // [column][row], a panel's width from column to column
  const float* rescale;  // one factor for each row
  bool empty;            // no earlier block; contents of `sums` are undefined
};

// Interface of both arithmetics. Non-finite values must not meet the weight 0 of a masked key.
class PvTile {
 public:
  virtual void place_values(const Operand& values) noexcept = 0;
  // Adds weights[key][row] times values, from the tile's first key on. May overwrite the weights.
  virtual void run(const RowTile& tile, float* weights, const ValueSums& to) noexcept = 0;

 protected:
  ~PvTile() = default;
};

// One specialisation each: floats look for NaN if a mask requires it, pairs when packed.
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
    // If every row sees every key of the union, non-finite values belong in every row. Otherwise
    // the block's values are checked once; most often all are finite.
    const bool masks = tile.ranges.ragged || tile.masks_one_by_one();
    if (masks && !finite_) finite_ = all_finite(values_, count_, columns_);
    // Tiles begin at multiples of four keys, products at the union: values before it may be NaN.
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

  // Same sums in the same order, so the same bits, but a row meets only values that it sees.
  void add_seen(const RowTile& tile, const float* weights, const ValueSums& to) const {
    const Floats d;
    const std::size_t lanes = hn::Lanes(d), width = panel_width(), first = tile.ranges.first;
    // For non-finite values under a mask, which are rare: as exact as the other path, not as fast.
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
  Buffer<float> copies_;     // of a block whose values cannot be read in place
  Strided<float> values_{};  // of this block
  std::size_t count_ = 0;
  std::optional<bool> finite_;  // set by the first tile that needs it
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

  // Non-finite values are 0 in their pair, so tiles may begin before the union's first key. Weights
  // are rounded here, after the row states have summed them.
  void run(const RowTile& tile, float* weights, const ValueSums& to) noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t width = panel_width(), panel = arithmetic_.pairs_of(values_->count()) * width;
    const std::size_t depth = arithmetic_.pairs_of(tile.keys());
    const Pair* pairs = kernels.round_tile(weights, tile.keys());
    // The dot product only adds; a replacing instance would serve only the first of many blocks.
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
  // Adds the non-finite values that packing replaced by 0, for the rows that see them.
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
          // Uses the rounded weight, so that the row has the same weight in every column.
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
