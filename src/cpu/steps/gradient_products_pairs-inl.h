// GradientProducts in bf16 pairs.

#if defined(ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_
#undef ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_
#else
#define ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/pairs_arithmetic-inl.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/gradient_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

template <>
class GradientProductsOf<Pairs> final : public GradientOperands<Pairs> {
 public:
  using GradientOperands::GradientOperands;

  // Numbers of a tile in pairs: of two keys for sums over keys, of two rows for sums over rows.
  std::array<Scratch::Array, 5> numbers(std::size_t rows, std::size_t tangent_rows) {
    const auto by_key = [&](TileArray array, std::size_t count) {
      return Scratch::Array(by_key_[array], count * kGradientKeys / 2);
    };
    const auto by_row = [&](TileArray array, std::size_t count) {
      return Scratch::Array(by_row_[array], arithmetic_.pairs_of(count) * kGradientKeys);
    };
    return {by_key(kGradients, rows), by_row(kGradients, rows), by_row(kWeights, rows),
            by_key(kTangents, tangent_rows), by_row(kTangents, tangent_rows)};
  }

  std::size_t rows_at_once() const noexcept override { return arithmetic_.kernels().rows; }

  // Queries are not scaled here, and output gradients do not include the sink: in sums over rows,
  // numbers carry the rows' factors instead.
  void finish_rows(GradientTile& tile, const TileNumbers& numbers, RowSide rows_of, std::size_t row,
                   std::size_t rows) noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t end = row + rows, first = tile.first, count = tile.last - first;
    const Buffer<Pair>& by_key = by_key_[numbers.array];
    for (std::size_t r = row; r < end && by_key.size() > 0; ++r) {
      const std::size_t at = r * kGradientKeys + first;
      kernels.round_row(numbers.numbers + at, count, by_key.at(at / 2, count / 2));
    }
    // The missing partner of an odd last row is 0, because the tile may hold NaN there.
    if (rows % 2 == 1) std::fill_n(numbers.numbers + end * kGradientKeys + first, count, 0.0f);
    // Sums over keys and over rows pair different neighbours: numbers are rounded twice, from f32.
    const Buffer<Pair>& by_row = by_row_[numbers.array];
    for (std::size_t r = row; r < end; r += 2) {
      const std::size_t at = r * kGradientKeys + first, next = at + kGradientKeys;
      kernels.round_two_rows(numbers.numbers + at, numbers.numbers + next,
                             tile.queries.factors(rows_of) + r, count,
                             by_row.at(r / 2 * kGradientKeys + first, count));
    }
    if (end == tile.queries.rows) clear_padding(by_row, end);
  }

  void add_to_rows(const GradientTile& tile, const TileNumbers& numbers, KeySide keys_of,
                   const TileSums& to) const noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t width = panel_width(), rows = tile.queries.rows;
    // A pair with one visible key is summed whole: at the other the number is 0, and its key
    // finite.
    const std::size_t first = round_down(tile.ranges.first, 2 * kernels.depth), pair = first / 2;
    const std::size_t depth = arithmetic_.pairs_of(tile.ranges.last - first);
    for (std::size_t row = 0; row < rows; row += kernels.rows) {
      kernels.add_rows({.rows = HWY_MIN(kernels.rows, rows - row),
                        .columns = to.columns,
                        .depth = depth,
                        .a = by_key_[numbers.array].data() + row * kGradientKeys / 2 + pair,
                        .b = key_rows_[keys_of].data() + (tile.key / 2 + pair) * width,
                        .b_panel = arithmetic_.pairs_of(keys_[keys_of]->count()) * width,
                        .c = to.sums + row * to.columns,
                        .c_stride = to.columns});
    }
    if (!keys_finite_[keys_of]) add_nonfinite_keys(tile, numbers, *keys_[keys_of], to);
  }

  void add_to_keys(const GradientTile& tile, const TileNumbers& numbers, RowSide rows_of,
                   const TileSums& to) const noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t row_pairs = arithmetic_.pairs_of(tile.queries.rows), last = tile.ranges.last;
    for (std::size_t j = tile.first; j < last; j += kernels.rows) {
      kernels.add_transposed({.rows = HWY_MIN(kernels.rows, last - j),
                              .columns = to.columns,
                              .depth = row_pairs,
                              .a = by_row_[numbers.array].data() + j,
                              .b = right_of(rows_of),
                              .b_panel = row_pairs * panel_width(),
                              .c = to.sums + (tile.key + j) * to.columns,
                              .c_stride = to.columns});
    }
    if (!rows_finite_[rows_of]) add_nonfinite_rows(tile, numbers, rows_of, to);
  }

  void finish_sums(const TileSums& of, std::size_t keys) const noexcept override {
    if (!arithmetic_.kernels().is_turned) return;
    turn_blocks(of.sums, round_up(keys, kTurned), of.columns);
  }

 private:
  // Pairs that pad the depth meet zeros, and must not be NaN.
  void clear_padding(const Buffer<Pair>& by_row, std::size_t rows) const {
    const std::size_t pairs = (rows + 1) / 2, padding = arithmetic_.pairs_of(rows) - pairs;
    std::fill_n(by_row.at(pairs * kGradientKeys, padding * kGradientKeys), padding * kGradientKeys,
                Pair{});
  }

  // Index of the sum of a key and a column while tiles are added.
  [[nodiscard]] std::size_t sum_at(std::size_t key, std::size_t column, std::size_t columns) const {
    if (!arithmetic_.kernels().is_turned) return key * columns + column;
    const std::size_t row = round_down(key, kTurned) + column % kTurned;
    return row * columns + round_down(column, kTurned) + key % kTurned;
  }

  // Both add the non-finite numbers that packing replaced by 0, only for rows and keys that see
  // them. They are rare, so they are added one by one.
  static void add_nonfinite_keys(const GradientTile& tile, const TileNumbers& numbers,
                                 const Operand& keys, const TileSums& to) {
    for_each_nonfinite(keys, tile.key + tile.ranges.first, tile.key + tile.ranges.last,
                       [&](std::size_t key, std::size_t c, float x) {
                         const std::size_t j = key - tile.key;
                         for (std::size_t r = 0; r < tile.queries.rows; ++r) {
                           if (!tile.sees(r, j)) continue;
                           to.sums[r * to.columns + c] +=
                               numbers.numbers[r * kGradientKeys + j] * x;
                         }
                       });
  }
  void add_nonfinite_rows(const GradientTile& tile, const TileNumbers& numbers, RowSide rows_of,
                          const TileSums& to) const {
    const float* factors = tile.queries.factors(rows_of);
    for_each_nonfinite(tile.queries.operand(rows_of), 0, tile.queries.rows,
                       [&](std::size_t r, std::size_t c, float x) {
                         for (std::size_t j = tile.ranges.first; j < tile.ranges.last; ++j) {
                           if (!tile.sees(r, j)) continue;
                           to.sums[sum_at(tile.key + j, c, to.columns)] +=
                               numbers.numbers[r * kGradientKeys + j] * (factors[r] * x);
                         }
                       });
  }

  // Calls add(row, column, number) for each non-finite number in rows first ... last - 1.
  template <typename Add>
  static void for_each_nonfinite(const Operand& from, std::size_t first, std::size_t last,
                                 const Add& add) {
    for (std::size_t row = first; row < last; ++row) {
      for (std::size_t c = 0; c < from.columns(); ++c) {
        const float x = from.at(row, c);
        if (!std::isfinite(x)) add(row, c, x);
      }
    }
  }

  std::array<Buffer<Pair>, kTileArrays> by_key_, by_row_;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
