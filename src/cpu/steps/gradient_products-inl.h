// Products of the backward pass: logits Z = lambda Q K^T and dp = dO V^T of a tile, and the sums dQ
// += dz K, dK += dz^T lambda Q, dV += P^T dO.

#if defined(ISENTROPE_GRADIENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#undef ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#else
#define ISENTROPE_GRADIENT_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/query_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Sums over tiles, rows whole panels apart: dq without lambda; dk (in log2 like queries) and dv.
struct GradientSums {
  std::size_t columns, value_columns;
  Buffer<float> dq, dk, dv;
};

// Interface of both arithmetics, because the numbers of a key block and its queries decide which
// one is used. Non-finite numbers must not meet a weight of 0 in rows that do not see them.
class GradientProducts {
 public:
  virtual void pack_keys(const Operand& keys, const Operand& values) noexcept = 0;
  virtual void pack_queries(const QueryTile& queries) noexcept = 0;
  // Computes logits and dp of rows row ... row + rows - 1, over the tile's whole panels.
  virtual void multiply(GradientTile& tile, std::size_t row, std::size_t rows) const noexcept = 0;
  // Adds to the sums; called with the same rows once they hold P and dz.
  virtual void finish_rows(GradientTile& tile, std::size_t row, std::size_t rows) noexcept = 0;
  virtual void add(const GradientTile& tile, const GradientSums& to) const noexcept = 0;
  // Called after all tiles are added, before the rows of dk and dv of `keys` keys are read.
  virtual void finish_sums(const GradientSums& /*of*/, std::size_t /*keys*/) const noexcept {}
  // Preferred number of rows for multiply() and finish_rows().
  [[nodiscard]] virtual std::size_t rows_at_once() const noexcept { return kRegisterRows; }

 protected:
  ~GradientProducts() = default;
};

// Packing shared by both arithmetics, and the products of a tile's logits and dp.
template <typename Arithmetic>
class GradientOperands : public GradientProducts {
 public:
  using Element = typename Arithmetic::Element;

  GradientOperands(const Arithmetic& arithmetic, std::size_t dim, std::size_t value_dim)
      : arithmetic_(arithmetic),
        dims_{dim / Arithmetic::kNumbers, value_dim / Arithmetic::kNumbers},
        columns_{round_up(dim, panel_width()), round_up(value_dim, panel_width())} {}

  // Arrays for the task's Scratch, for `keys` keys in whole tiles, and a query tile.
  Scratch::Array keys_across(std::size_t keys) { return {across_[0], keys * dims_[0]}; }
  Scratch::Array values_across(std::size_t keys) { return {across_[1], keys * dims_[1]}; }
  Scratch::Array key_rows(std::size_t keys) {
    return {key_rows_, keys / Arithmetic::kNumbers * columns_[0]};
  }
  Scratch::Array queries_left(std::size_t rows) { return {left_[0], rows * columns_[0]}; }
  Scratch::Array queries_right(std::size_t rows) { return {right_[0], right_size(rows, 0)}; }
  Scratch::Array d_output_left(std::size_t rows) { return {left_[1], rows * columns_[1]}; }
  Scratch::Array d_output_right(std::size_t rows) { return {right_[1], right_size(rows, 1)}; }

  void pack_keys(const Operand& keys, const Operand& values) noexcept override {
    // Keys are a right operand twice, transposed (logits) and in rows (dq); values only transposed.
    keys_ = &keys;
    arithmetic_.pack_transposed(keys, nullptr, across_[0].data());
    arithmetic_.pack_transposed(values, nullptr, across_[1].data());
    keys_finite_ = arithmetic_.pack_right(keys, key_rows_.data());
  }

  void pack_queries(const QueryTile& tile) noexcept override {
    rows_finite_ =
        arithmetic_.pack_both(tile.queries, tile.lambda, left_[0].data(), right_[0].data());
    if (tile.d_output.count() > 0) {
      rows_finite_ &= arithmetic_.pack_both(tile.d_output, tile.non_sink_weight, left_[1].data(),
                                            right_[1].data());
    } else {
      // Without an upstream gradient of the output, dp is 0, and gradients of statistics remain.
      std::fill_n(left_[1].data(), left_[1].size(), Element{});
    }
  }

  void multiply(GradientTile& tile, std::size_t row, std::size_t rows) const noexcept override {
    const std::size_t width = panel_width(), at = row * kGradientKeys + tile.first;
    const auto product = [&](std::size_t side, const float* factors, float* to) {
      const std::size_t depth = dims_[side];
      arithmetic_.multiply_packed({.rows = rows,
                                   .columns = tile.last - tile.first,
                                   .depth = depth,
                                   .a = left_[side].data() + row * width,
                                   .a_panel = tile.queries.rows * width,
                                   .b = across_[side].data() + (tile.key + tile.first) * depth,
                                   .b_panel = width * depth,
                                   .c = to + at,
                                   .c_stride = kGradientKeys,
                                   .factors = factors + row});
    };
    product(0, tile.queries.lambda, tile.weights);
    product(1, tile.queries.non_sink_weight, tile.gradients);
  }

 protected:
  ~GradientOperands() = default;

  [[nodiscard]] bool finite() const { return keys_finite_ && rows_finite_; }
  [[nodiscard]] const Element* right(std::size_t side) const {
    return arithmetic_.right_of(left_[side].data(), right_[side].data());
  }

  const Arithmetic arithmetic_;
  const std::size_t dims_[2];     // queries and keys; output gradients and values; in elements
  const std::size_t columns_[2];  // same in numbers, in whole panels
  const Operand* keys_ = nullptr;
  Buffer<Element> across_[2];           // keys and values, transposed
  Buffer<Element> key_rows_;            // keys as right operand
  Buffer<Element> left_[2], right_[2];  // queries and output gradients, as left and right operand
  bool keys_finite_ = true, rows_finite_ = true;

 private:
  [[nodiscard]] std::size_t right_size(std::size_t rows, std::size_t side) const {
    return arithmetic_.right_rows_of(rows) * columns_[side];
  }
};

template <typename Arithmetic>
class GradientProductsOf;

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
