// Products of the backward pass and the second-order pass: of query rows with the keys of a block
// (logits Q K^T, dp = dO V^T), and of a tile's numbers with either (dQ += dz K, dK += dz^T Q).

#if defined(ISENTROPE_GRADIENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#undef ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#else
#define ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/query_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Numbers of a gradient tile that are summed over its keys or its rows.
struct TileNumbers {
  TileArray array;  // which of the tile's
  float* numbers;   // [row][key], kGradientKeys apart
};

// Sums over tiles, rows whole panels apart.
struct TileSums {
  float* sums;
  std::size_t columns;
};

// Keys of a block in whole tiles, and rows of a query tile; 0 of sides that a call does not have.
struct SideCounts {
  std::array<std::size_t, kKeySides> keys;
  std::array<std::size_t, kRowSides> rows;
};

// Interface of both arithmetics, because the numbers of a key block and its queries decide which
// one is used. Non-finite numbers must not meet a weight of 0 in rows that do not see them.
class GradientProducts {
 public:
  // Each operand is packed before the products that take it, and must stay.
  virtual void pack_keys(KeySide side, const Operand& keys) noexcept = 0;
  // Rows are multiplied by their factors (QueryTile::factors) in every product.
  virtual void pack_rows(RowSide side, const QueryTile& tile) noexcept = 0;
  // Computes products of rows row ... row + rows - 1 with the tile's keys, over its whole panels.
  virtual void multiply(const GradientTile& tile, RowSide rows_of, KeySide keys_of, std::size_t row,
                        std::size_t rows, float* to) const noexcept = 0;
  // Prepares numbers of a tile for the sums below; called with the same rows once they are final.
  // `rows_of` are the rows of add_to_keys().
  virtual void finish_rows(GradientTile& tile, const TileNumbers& numbers, RowSide rows_of,
                           std::size_t row, std::size_t rows) noexcept = 0;
  // Adds the products of numbers with the tile's keys to the sums of its rows.
  virtual void add_to_rows(const GradientTile& tile, const TileNumbers& numbers, KeySide keys_of,
                           const TileSums& to) const noexcept = 0;
  // Adds the products of transposed numbers with the tile's rows to the sums of the block's keys.
  virtual void add_to_keys(const GradientTile& tile, const TileNumbers& numbers, RowSide rows_of,
                           const TileSums& to) const noexcept = 0;
  // Called after all tiles are added, before the sums of `keys` keys are read.
  virtual void finish_sums(const TileSums& /*of*/, std::size_t /*keys*/) const noexcept {}
  // Preferred number of rows for multiply() and finish_rows().
  [[nodiscard]] virtual std::size_t rows_at_once() const noexcept { return kRegisterRows; }

 protected:
  ~GradientProducts() = default;
};

// Packing shared by both arithmetics, and products of rows with keys.
template <typename Arithmetic>
class GradientOperands : public GradientProducts {
 public:
  using Element = typename Arithmetic::Element;

  GradientOperands(const Arithmetic& arithmetic, std::size_t dim, std::size_t value_dim)
      : arithmetic_(arithmetic),
        dims_{dim, value_dim},
        columns_{round_up(dim, panel_width()), round_up(value_dim, panel_width())} {}

  // Arrays for the task's Scratch.
  std::array<Scratch::Array, 12> arrays(const SideCounts& counts) {
    const auto across = [&](KeySide side) {
      return Scratch::Array(across_[side], counts.keys[side] * depth_of(side));
    };
    const auto key_rows = [&](KeySide side) {
      return Scratch::Array(
          key_rows_[side], counts.keys[side] / Arithmetic::kNumbers * columns_[is_of_values(side)]);
    };
    const auto left = [&](RowSide side) {
      return Scratch::Array(left_[side], counts.rows[side] * columns_[is_of_values(side)]);
    };
    const auto right = [&](RowSide side) {
      const std::size_t rows = arithmetic_.right_rows_of(counts.rows[side]);
      return Scratch::Array(right_[side], rows * columns_[is_of_values(side)]);
    };
    return {across(kKeys),           across(kValues),      across(kKeyTangents),
            across(kValueTangents),  key_rows(kKeys),      key_rows(kKeyTangents),
            left(kQueries),          right(kQueries),      left(kOutputGradients),
            right(kOutputGradients), left(kQueryTangents), right(kQueryTangents)};
  }

  void pack_keys(KeySide side, const Operand& keys) noexcept override {
    // Keys are a right operand twice, transposed (logits) and in rows (dq); values only transposed.
    keys_[side] = &keys;
    arithmetic_.pack_transposed(keys, nullptr, across_[side].data());
    if (!is_of_values(side))
      keys_finite_[side] = arithmetic_.pack_right(keys, key_rows_[side].data());
  }

  void pack_rows(RowSide side, const QueryTile& tile) noexcept override {
    rows_finite_[side] = arithmetic_.pack_both(tile.operand(side), tile.factors(side),
                                               left_[side].data(), right_[side].data());
  }

  void multiply(const GradientTile& tile, RowSide rows_of, KeySide keys_of, std::size_t row,
                std::size_t rows, float* to) const noexcept override {
    const std::size_t width = panel_width(), depth = depth_of(keys_of);
    arithmetic_.multiply_packed({.rows = rows,
                                 .columns = tile.last - tile.first,
                                 .depth = depth,
                                 .a = left_[rows_of].data() + row * width,
                                 .a_panel = tile.queries.rows * width,
                                 .b = across_[keys_of].data() + (tile.key + tile.first) * depth,
                                 .b_panel = width * depth,
                                 .c = to + row * kGradientKeys + tile.first,
                                 .c_stride = kGradientKeys,
                                 .factors = tile.queries.factors(rows_of) + row});
  }

 protected:
  ~GradientOperands() = default;

  [[nodiscard]] std::size_t depth_of(KeySide side) const {
    return dims_[is_of_values(side)] / Arithmetic::kNumbers;
  }
  [[nodiscard]] const Element* right_of(RowSide side) const {
    return arithmetic_.right_of(left_[side].data(), right_[side].data());
  }

  const Arithmetic arithmetic_;
  const std::array<std::size_t, 2> dims_, columns_;  // of queries and of values; columns in panels
  std::array<const Operand*, kKeySides> keys_{};
  std::array<Buffer<Element>, kKeySides> across_;    // transposed
  std::array<Buffer<Element>, kKeySides> key_rows_;  // as right operand
  std::array<Buffer<Element>, kRowSides> left_, right_;
  std::array<bool, kKeySides> keys_finite_{};
  std::array<bool, kRowSides> rows_finite_{};
};

template <typename Arithmetic>
class GradientProductsOf;

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
