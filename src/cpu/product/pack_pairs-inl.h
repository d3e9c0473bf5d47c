// Packing of bf16 rows for bf16_pairs.h: pairs of two numbers that are neighbours along the
// depth, which are columns where scores are computed and rows where values are added up.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_PACK_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_PACK_PAIRS_INL_H_
#undef ISENTROPE_PACK_PAIRS_INL_H_
#else
#define ISENTROPE_PACK_PAIRS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/product/bf16_pairs.h"
#include "src/cpu/product/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Whether this target has the tiles of bf16_pairs.h.
HWY_INLINE bool has_bf16_products() {
  return kRegisterRows == bf16::kRows && panel_width() == bf16::kColumns && bf16::is_supported();
}

// Whether rows of this kind can be read as pairs: whole vectors of them.
HWY_INLINE bool has_whole_pairs(const ConstTensor& tensor) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<std::uint16_t>()));
  return tensor.type == DType::bf16 && tensor.extents[3] % lanes == 0;
}

// Whether the dot product serves every number: no denormals, which it drops, and nothing of 2^60 or
// more, whose sums may overflow before lambda scales them. NaN and inf stay what they are.
HWY_INLINE bool fits_bf16_pairs(const RowList& from) {
  const hn::ScalableTag<std::int16_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d), one = hn::Set(d, 1), normal = hn::Set(d, 0x0080);
  const auto huge = hn::Set(d, (127 + 60) << 7), infinity = hn::Set(d, 0x7f80);
  auto unfit = zero;
  for (const std::byte* row : from.rows) {
    const auto* bits = reinterpret_cast<const std::int16_t*>(row);
    for (std::size_t c = 0; c < static_cast<std::size_t>(from.columns); c += lanes) {
      const auto size = hn::And(hn::LoadU(d, bits + c), hn::Set(d, 0x7fff));
      const auto is_denormal = hn::And(hn::Lt(zero, size), hn::Lt(size, normal));
      const auto is_huge = hn::AndNot(hn::Lt(size, huge), hn::Lt(size, infinity));
      unfit = hn::Or(unfit, hn::IfThenElseZero(hn::Or(is_denormal, is_huge), one));
    }
  }
  return hn::AllTrue(d, hn::Eq(unfit, zero));
}

// Calls visit(list) with bf16 rows as rows of pairs, which move as floats and are never computed
// with: any bits are fine.
template <typename Visit>
HWY_INLINE auto as_pairs(RowList& rows, const Visit& visit) {
  rows.columns /= 2;
  rows.type = DType::f32;
  const auto result = visit(rows);
  rows.columns *= 2;
  rows.type = DType::bf16;
  return result;
}

HWY_INLINE void pack_transposed_pairs(RowList& from, float* HWY_RESTRICT to) {
  as_pairs(from, [&](const RowList& pairs) {
    pack_transposed(pairs, to);
    return true;
  });
}

// Pairs of the rows in panels of columns: to[panel][row][pair].
HWY_INLINE void pack_column_pairs(const RowList& from, std::size_t padded_rows,
                                  float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), width = panel_width();
  const auto pairs = static_cast<std::size_t>(from.columns / 2);
  for (std::size_t row = 0; row < from.rows.size(); ++row) {
    prefetch_row(from, row + kRowsAhead);
    const auto* source = reinterpret_cast<const float*>(from.rows[row]);
    for (std::size_t c = 0; c < pairs; c += lanes) {
      hn::Store(hn::LoadU(d, source + c), d,
                to + c / width * width * padded_rows + row * width + c % width);
    }
  }
}

// Pairs of neighbouring rows in panels of columns: to[panel][pair][column]. What is not finite
// becomes 0, as does the partner of an odd last row. Returns whether everything was finite.
HWY_INLINE bool pack_row_pairs(const RowList& from, float* HWY_RESTRICT to) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> narrow;
  const std::size_t lanes = hn::Lanes(d), pairs = (from.rows.size() + 1) / 2;
  const auto exponent = hn::Set(d, 0x7f80u);
  auto nonfinite = hn::Zero(d);
  const auto load = [&](std::size_t row, std::size_t column) HWY_ATTR {
    if (row >= from.rows.size()) return hn::Zero(d);
    const auto* bits = reinterpret_cast<const std::uint16_t*>(from.rows[row]) + column;
    const auto x = hn::PromoteTo(d, hn::LoadU(narrow, bits));
    const auto is_nonfinite = hn::VecFromMask(d, hn::Eq(hn::And(x, exponent), exponent));
    nonfinite = hn::Or(nonfinite, is_nonfinite);
    return hn::AndNot(is_nonfinite, x);
  };
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    prefetch_row(from, 2 * pair + kRowsAhead);
    prefetch_row(from, 2 * pair + 1 + kRowsAhead);
    for (std::size_t c = 0; c < static_cast<std::size_t>(from.columns); c += lanes) {
      const auto both = hn::Or(load(2 * pair, c), hn::ShiftLeft<16>(load(2 * pair + 1, c)));
      const std::size_t panel = c / bf16::kColumns, column = c % bf16::kColumns;
      hn::Store(hn::BitCast(Floats(), both), Floats(),
                to + (panel * pairs + pair) * bf16::kColumns + column);
    }
  }
  return hn::AllTrue(d, hn::Eq(nonfinite, hn::Zero(d)));
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
