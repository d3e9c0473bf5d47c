// Scores of a tile as [row][key], where lanes run along keys: sums over rows stay in registers.

#if defined(ISENTROPE_KEY_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_KEY_SCORES_INL_H_
#undef ISENTROPE_KEY_SCORES_INL_H_
#else
#define ISENTROPE_KEY_SCORES_INL_H_
#endif

#include <array>
#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Interface of both arithmetics, because the numbers of keys and queries decide which one is used.
class KeyScores {
 public:
  virtual void pack_keys(const Operand& keys) noexcept = 0;
  // factors: lambda in log2, one for each query.
  virtual void pack_queries(const Operand& queries, const float* factors) noexcept = 0;
  // Computes scores[row][key], rows `stride` apart, of `rows` packed queries from `row` on and
  // `keys` packed keys from `key` on, both in whole panels.
  virtual void run(std::size_t row, std::size_t rows, std::size_t key, std::size_t keys,
                   float* scores, std::size_t stride) const noexcept = 0;
  // Preferred number of rows for run().
  [[nodiscard]] virtual std::size_t rows_at_once() const noexcept = 0;

 protected:
  ~KeyScores() = default;
};

template <typename Arithmetic>
class KeyScoresOf final : public KeyScores {
 public:
  using Element = typename Arithmetic::Element;

  KeyScoresOf(const Arithmetic& arithmetic, std::size_t dim)
      : arithmetic_(arithmetic),
        depth_(dim / Arithmetic::kNumbers),
        columns_(round_up(dim, panel_width())) {}

  // Arrays for the task's Scratch, for `keys` keys in whole panels and `rows` queries.
  std::array<Scratch::Array, 2> arrays(std::size_t keys, std::size_t rows) {
    return {{{keys_, keys * depth_}, {queries_, rows * columns_}}};
  }

  void pack_keys(const Operand& keys) noexcept override {
    arithmetic_.pack_transposed(keys, nullptr, keys_.data());
  }
  void pack_queries(const Operand& queries, const float* factors) noexcept override {
    arithmetic_.pack_left(queries, factors, queries_.data());
    factors_ = factors;
    a_panel_ = queries.count() * panel_width();
  }
  void run(std::size_t row, std::size_t rows, std::size_t key, std::size_t keys, float* scores,
           std::size_t stride) const noexcept override {
    const std::size_t width = panel_width();
    arithmetic_.multiply_packed({.rows = rows,
                                 .columns = keys,
                                 .depth = depth_,
                                 .a = queries_.data() + row * width,
                                 .a_panel = a_panel_,
                                 .b = keys_.data() + key * depth_,
                                 .b_panel = width * depth_,
                                 .c = scores,
                                 .c_stride = stride,
                                 .factors = factors_ + row});
  }
  [[nodiscard]] std::size_t rows_at_once() const noexcept override {
    return arithmetic_.rows_at_once();
  }

 private:
  const Arithmetic arithmetic_;
  const std::size_t depth_, columns_;
  Buffer<Element> keys_;     // transposed, in panels of keys
  Buffer<Element> queries_;  // in panels of columns
  const float* factors_ = nullptr;
  std::size_t a_panel_ = 0;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
