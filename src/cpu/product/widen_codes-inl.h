// Floats from codes of 8 bits and their scales: a few rows of a cache, on their way to the products
// of a decode step.
//
// Where a vector of codes has one scale they are widened on their way into registers
// (decode_codes-inl.h). Of groups that end within a vector, rows are widened into L1, from where
// the products of f32 read them.
//
// Per-target header: compiled once for every instruction set.

#if defined(ISENTROPE_WIDEN_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_WIDEN_CODES_INL_H_
#undef ISENTROPE_WIDEN_CODES_INL_H_
#else
#define ISENTROPE_WIDEN_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/operand.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// d's lanes of consecutive codes, exactly.
template <typename D>
HWY_INLINE hn::Vec<D> load_codes(D d, const std::int8_t* from) {
  const hn::Rebind<std::int32_t, D> wide;
  const hn::Rebind<std::int8_t, D> narrow;
  return hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, from)));
}

// to[row][column] of rows begin ... end - 1, whose columns lie side by side. Rows `ahead` of them
// begin to travel to the cache.
HWY_INLINE void widen_codes(const Operand& from, std::size_t begin, std::size_t end,
                            std::size_t ahead, float* HWY_RESTRICT to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), columns = from.columns(), group = from.group();
  for (std::size_t r = begin; r < end; ++r, to += columns) {
    if (r + ahead < from.count()) {
      for (std::size_t byte = 0; byte < columns; byte += 64)
        hwy::Prefetch(from.row(r + ahead) + byte);
    }
    const auto* codes = reinterpret_cast<const std::int8_t*>(from.row(r));
    for (std::size_t c = 0; c < columns; c += group) {
      const float scale = from.scale(r, c / group);
      const auto by = hn::Set(d, scale);
      std::size_t i = c;
      for (; i + lanes <= c + group; i += lanes)
        hn::StoreU(hn::Mul(by, load_codes(d, codes + i)), d, to + i);
      for (; i < c + group; ++i) to[i] = scale * static_cast<float>(codes[i]);
    }
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
