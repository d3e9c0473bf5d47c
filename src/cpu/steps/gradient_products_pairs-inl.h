// GradientProducts in bf16 pairs.

#if defined(ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_
#undef ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_
#else
#define ISENTROPE_GRADIENT_PRODUCTS_PAIRS_INL_H_
#endif

#include <algorithm>
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

  // Tiles of dz and P in pairs: of two keys for sums over keys, of two rows for sums over rows.
  Scratch::Array by_key(std::size_t rows) { return {by_key_, rows * kGradientKeys / 2}; }
  Scratch::Array by_row(std::size_t rows) {
    return {by_row_, arithmetic_.pairs_of(rows) * kGradientKeys};
  }
  Scratch::Array weights(std::size_t rows) {
    return {weights_, arithmetic_.pairs_of(rows) * kGradientKeys};
  }

  std::size_t rows_at_once() const noexcept override { return arithmetic_.kernels().rows; }

  void pack_queries(const QueryTile& tile) noexcept override {
    GradientOperands::pack_queries(tile);
    // Pairs that pad the depth meet zeros, and must not be NaN.
    const std::size_t pairs = (tile.rows + 1) / 2;
    const std::size_t padding = arithmetic_.pairs_of(tile.rows) - pairs;
    for (const Buffer<Pair>* sums : {&by_row_, &weights_}) {
      std::fill_n(sums->at(pairs * kGradientKeys, padding * kGradientKeys), padding * kGradientKeys,
                  Pair{});
    }
  }

  // Queries are not scaled here, and output gradients do not include the sink: in sums over rows,
  // dz and P carry lambda and the non-sink weight instead.
  void finish_rows(GradientTile& tile, std::size_t row, std::size_t rows) noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t end = row + rows, first = tile.first, count = tile.last - first;
    for (std::size_t r = row; r < end; ++r) {
      const std::size_t at = r * kGradientKeys + first;
      kernels.round_row(tile.gradients + at, count, by_key_.at(at / 2, count / 2));
    }
    // The missing partner of an odd last row is 0, because the tile may hold NaN there.
    if (rows % 2 == 1) {
      std::fill_n(tile.gradients + end * kGradientKeys + first, count, 0.0f);
      std::fill_n(tile.weights + end * kGradientKeys + first, count, 0.0f);
    }
    // Sums over keys and over rows pair different neighbours: dz is rounded twice, both from f32.
    for (std::size_t r = row; r < end; r += 2) {
      const std::size_t at = r * kGradientKeys + first, next = at + kGradientKeys;
      const std::size_t pair = r / 2 * kGradientKeys + first;
      kernels.round_two_rows(tile.gradients + at, tile.gradients + next, tile.queries.lambda + r,
                             count, by_row_.at(pair, count));
      kernels.round_two_rows(tile.weights + at, tile.weights + next,
                             tile.queries.non_sink_weight + r, count, weights_.at(pair, count));
    }
  }

  void add(const GradientTile& tile, const GradientSums& to) const noexcept override {
    const PairKernels& kernels = arithmetic_.kernels();
    const std::size_t width = panel_width(), rows = tile.queries.rows;
    const std::size_t row_pairs = arithmetic_.pairs_of(rows);
    // A pair with one visible key is summed whole: at the other dz is 0, and its value finite.
    const std::size_t first = round_down(tile.ranges.first, 2 * kernels.depth), pair = first / 2;
    const std::size_t last = tile.ranges.last, depth = arithmetic_.pairs_of(last - first);
    for (std::size_t row = 0; row < rows; row += kernels.rows) {
      kernels.add_rows({.rows = HWY_MIN(kernels.rows, rows - row),
                        .columns = to.columns,
                        .depth = depth,
                        .a = by_key_.data() + row * kGradientKeys / 2 + pair,
                        .b = key_rows_.data() + (tile.key / 2 + pair) * width,
                        .b_panel = arithmetic_.pairs_of(keys_->count()) * width,
                        .c = to.dq.data() + row * to.columns,
                        .c_stride = to.columns});
    }
    for (std::size_t j = tile.first; j < last; j += kernels.rows) {
      TileProduct<Pair> product{.rows = HWY_MIN(kernels.rows, last - j),
                                .columns = to.columns,
                                .depth = row_pairs,
                                .a = by_row_.data() + j,
                                .b = right(0),
                                .b_panel = row_pairs * width,
                                .c = to.dk.data() + (tile.key + j) * to.columns,
                                .c_stride = to.columns};
      kernels.add_transposed(product);
      product.columns = product.c_stride = to.value_columns;
      product.a = weights_.data() + j;
      product.b = right(1);
      product.c = to.dv.data() + (tile.key + j) * to.value_columns;
      kernels.add_transposed(product);
    }
    // Non-finite numbers are rare, so they are added one by one.
    if (!finite()) add_nonfinite(tile, to);
  }

  void finish_sums(const GradientSums& sums, std::size_t keys) const noexcept override {
    if (!arithmetic_.kernels().is_turned) return;
    turn_blocks(sums.dk.data(), round_up(keys, kTurned), sums.columns);
    turn_blocks(sums.dv.data(), round_up(keys, kTurned), sums.value_columns);
  }

 private:
  // Index of the sum of a key and a column while tiles are added.
  [[nodiscard]] std::size_t sum_at(std::size_t key, std::size_t column, std::size_t columns) const {
    if (!arithmetic_.kernels().is_turned) return key * columns + column;
    const std::size_t row = round_down(key, kTurned) + column % kTurned;
    return row * columns + round_down(column, kTurned) + key % kTurned;
  }

  // Adds the non-finite numbers that packing replaced by 0, only for rows and keys that see them.
  void add_nonfinite(const GradientTile& tile, const GradientSums& to) const {
    const QueryTile& queries = tile.queries;
    const std::size_t first = tile.ranges.first, last = tile.ranges.last;
    for_each_nonfinite(
        *keys_, tile.key + first, tile.key + last, [&](std::size_t j, std::size_t c, float x) {
          for (std::size_t r = 0; r < queries.rows; ++r) {
            if (!tile.sees(r, j - tile.key)) continue;
            to.dq[r * to.columns + c] += tile.gradients[r * kGradientKeys + j - tile.key] * x;
          }
        });
    const auto add_rows = [&](const Operand& from, const float* factors, const float* left,
                              const Buffer<float>& sums, std::size_t columns) {
      for_each_nonfinite(from, 0, queries.rows, [&](std::size_t r, std::size_t c, float x) {
        for (std::size_t j = first; j < last; ++j) {
          if (!tile.sees(r, j)) continue;
          sums[sum_at(tile.key + j, c, columns)] += left[r * kGradientKeys + j] * (factors[r] * x);
        }
      });
    };
    add_rows(queries.queries, queries.lambda, tile.gradients, to.dk, to.columns);
    add_rows(queries.d_output, queries.non_sink_weight, tile.weights, to.dv, to.value_columns);
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

  Buffer<Pair> by_key_, by_row_, weights_;  // dz, dz times lambda, P times the non-sink weight
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
