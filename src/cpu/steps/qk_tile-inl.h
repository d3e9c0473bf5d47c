// First step of a row tile: scores S = K (lambda Q)^T as [key][row], one lane for each row.

#if defined(ISENTROPE_QK_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_QK_TILE_INL_H_
#undef ISENTROPE_QK_TILE_INL_H_
#else
#define ISENTROPE_QK_TILE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/steps/row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Interface of both arithmetics: bf16 pairs do not support every number, so the choice is per
// block. Keys are read in place by blocks; queries are packed once a work item.
class QkTile {
 public:
  virtual void place_keys(const Operand& keys) noexcept = 0;
  // Computes scores[key][row] in log2, from the tile's first key on. lambda: one for each row.
  virtual void run(const RowTile& tile, const float* lambda, float* scores) const noexcept = 0;

 protected:
  ~QkTile() = default;
};

template <typename Arithmetic>
class QkTileOf final : public QkTile {
 public:
  using Element = typename Arithmetic::Element;

  QkTileOf(const Arithmetic& arithmetic, std::size_t dim)
      : arithmetic_(arithmetic),
        depth_(dim / Arithmetic::kNumbers),
        key_stride_(round_up(depth_, panel_width())) {}

  // Arrays for the task's Scratch, for `rows` queries and `keys` keys.
  Scratch::Array queries(std::size_t rows) { return {queries_, rows * depth_}; }
  Scratch::Array key_copies(std::size_t keys) { return {key_copies_, keys * key_stride_}; }

  // Separate from place_keys(): queries are packed once an item, and only by arithmetics in use.
  void pack_queries(const Operand& queries, const float* lambda) noexcept {
    arithmetic_.pack_transposed(queries, lambda, queries_.data());
  }
  void place_keys(const Operand& keys) noexcept override {
    keys_ = arithmetic_.read_rows(keys, key_stride_, key_copies_.data());
  }
  void run(const RowTile& tile, const float* lambda, float* scores) const noexcept override {
    const std::size_t width = panel_width();
    arithmetic_.multiply_rows(
        {.rows = tile.keys(),
         .columns = tile.rows,
         .depth = depth_,
         .a = keys_.data + static_cast<std::ptrdiff_t>(tile.first) * keys_.stride,
         .a_stride = static_cast<std::size_t>(keys_.stride),
         .b = queries_.at(tile.row * depth_, width * depth_),
         // A row tile is one panel wide, so there is no second one.
         .b_panel = 0,
         .c = scores,
         .c_stride = width,
         .factors = lambda});
  }

 private:
  const Arithmetic arithmetic_;
  const std::size_t depth_, key_stride_;
  Buffer<Element> queries_;     // transposed, in panels of rows
  Buffer<Element> key_copies_;  // of a block whose keys cannot be read in place
  Strided<Element> keys_{};     // of this block
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
