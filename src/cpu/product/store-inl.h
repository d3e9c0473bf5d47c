// Stores rows of floats in the caller's types and strides.

#if defined(ISENTROPE_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_STORE_INL_H_
#undef ISENTROPE_STORE_INL_H_
#else
#define ISENTROPE_STORE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/tensor_rows.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Same as write_row(), with vectors if columns are contiguous floats.
HWY_INLINE void store_row(const Tensor& to, std::int64_t batch, std::int64_t head, std::int64_t row,
                          float factor, const float* HWY_RESTRICT from) {
  // bf16 and f16 are rounded one by one, because results are a thousandth of what is read.
  if (to.type != DType::f32 || to.strides[3] != 1)
    return write_row(to, batch, head, row, factor, from);
  const Floats d;
  const std::size_t lanes = hn::Lanes(d), columns = static_cast<std::size_t>(to.extents[3]);
  float* data = static_cast<float*>(to.data) + batch * to.strides[0] + head * to.strides[1] +
                row * to.strides[2];
  const auto by = hn::Set(d, factor);
  std::size_t c = 0;
  for (; c + lanes <= columns; c += lanes)
    hn::StoreU(hn::Mul(by, hn::Load(d, from + c)), d, data + c);
  for (; c < columns; ++c) data[c] = factor * from[c];
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
