// F32: arithmetic of floats, for operands of every type.

#if defined(ISENTROPE_F32_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_F32_ARITHMETIC_INL_H_
#undef ISENTROPE_F32_ARITHMETIC_INL_H_
#else
#define ISENTROPE_F32_ARITHMETIC_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Interface of an arithmetic (Pairs is the other): element type, packing of rows, and products.
struct F32 {
  using Element = float;
  static constexpr std::size_t kNumbers = 1;  // numbers in an element

  // Packs rows transposed, in panels: to[panel][element][row], times a factor per row if `factors`
  // is given.
  static HWY_INLINE void pack_transposed(const Operand& from, const float* factors, float* to) {
    for_type(from.type(),
             [&](auto type) HWY_ATTR { transpose_panels<decltype(type)>(from, factors, to); });
  }

  // Returns rows for multiply_rows(): in place, or copied with `stride` elements from row to row.
  static HWY_INLINE Strided<float> read_rows(const Operand& from, std::size_t stride,
                                             float* memory) {
    if (const auto rows = from.in_place<float>()) return *rows;
    for_type(from.type(),
             [&](auto type) HWY_ATTR { copy_rows<decltype(type)>(from, stride, memory); });
    return {memory, static_cast<std::ptrdiff_t>(stride)};
  }

  // Packs rows for both sides of the backward products. Floats are multiplied by their row's factor
  // and serve as left and right operand. Returns whether all are finite.
  static HWY_INLINE bool pack_both(const Operand& from, const float* factors, float* left,
                                   [[maybe_unused]] float* right) {
    return pack_rows(from, from.count(), left, factors);
  }
  static HWY_INLINE void pack_left(const Operand& from, const float* factors, float* left) {
    pack_rows(from, from.count(), left, factors);
  }
  static HWY_INLINE bool pack_right(const Operand& from, float* right) {
    return pack_rows(from, from.count(), right);
  }
  static std::size_t right_rows_of(std::size_t /*rows*/) { return 0; }  // the left operand serves
  static float* right_of(float* left, [[maybe_unused]] float* right) { return left; }

  // Computes C = A B, with rows of A in place, and B transposed rows that include their factors.
  static HWY_INLINE void multiply_rows(const TileProduct<float>& product) {
    multiply<LeftRows, Into::replace>(product);
  }
  // Computes C = A B of packed rows: A from pack_both() or pack_left(), B from pack_transposed().
  static HWY_INLINE void multiply_packed(const TileProduct<float>& product) {
    multiply<LeftPanels, Into::replace>(product);
  }
  // Returns the preferred number of rows of multiply_packed().
  static std::size_t rows_at_once() { return kRegisterRows; }
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
