// Tensor: a 4-D strided view of numbers whose type is known at run time.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "isentrope/view.h"

namespace isentrope {

// Element types. i8: 8-bit codes of keys or values, read with the scales of quantize.h.
enum class DType { f32, bf16, f16, i8 };

// Storage types of 16 bits. They only hold bits, because arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

// Returns the bytes of an element.
[[nodiscard]] constexpr std::int64_t size_of(DType type) {
  return type == DType::f32 ? 4 : type == DType::i8 ? 1 : 2;
}
// Returns the name that error messages use, such as "bf16".
[[nodiscard]] constexpr const char* name_of(DType type) {
  constexpr std::array kNames = {"f32", "bf16", "f16", "i8"};
  return kNames[static_cast<std::size_t>(type)];
}

template <typename T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<Float16> = DType::f16;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::i8;

// A strided array of the caller with 4 axes. Strides count elements and may be 0 or negative, as in
// View. Without data it stands for an array that is not given or not requested. Views of float,
// BFloat16, Float16 and std::int8_t convert to it.
struct Tensor {
  void* data = nullptr;
  DType type = DType::f32;
  std::array<std::int64_t, 4> extents{}, strides{};

  Tensor() = default;
  Tensor(void* address, DType dtype, const std::array<std::int64_t, 4>& shape,
         const std::array<std::int64_t, 4>& steps)
      : data(address), type(dtype), extents(shape), strides(steps) {}
  template <typename T>
  Tensor(const View<T, 4>& view)
      : data(view.data), type(kDTypeOf<T>), extents(view.extents), strides(view.strides) {}

  explicit operator bool() const { return data != nullptr; }
};

// A Tensor that is only read.
struct ConstTensor {
  const void* data = nullptr;
  DType type = DType::f32;
  std::array<std::int64_t, 4> extents{}, strides{};

  ConstTensor() = default;
  ConstTensor(const void* address, DType dtype, const std::array<std::int64_t, 4>& shape,
              const std::array<std::int64_t, 4>& steps)
      : data(address), type(dtype), extents(shape), strides(steps) {}
  template <typename T>
  ConstTensor(const T* address, const std::array<std::int64_t, 4>& shape,
              const std::array<std::int64_t, 4>& steps)
      : data(address), type(kDTypeOf<T>), extents(shape), strides(steps) {}
  ConstTensor(const Tensor& tensor)
      : data(tensor.data), type(tensor.type), extents(tensor.extents), strides(tensor.strides) {}
  template <typename T>
  ConstTensor(const View<T, 4>& view)
      : data(view.data),
        type(kDTypeOf<std::remove_const_t<T>>),
        extents(view.extents),
        strides(view.strides) {}

  explicit operator bool() const { return data != nullptr; }

  // Returns one number as a float. Loops over many should choose the type once instead.
  [[nodiscard]] float operator()(std::int64_t i0, std::int64_t i1, std::int64_t i2,
                                 std::int64_t i3) const;
};

// Widens to float, exactly; NaN and Inf are kept.
[[nodiscard]] inline float to_float(float x) { return x; }
[[nodiscard]] inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
[[nodiscard]] inline float to_float(Float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000) << 16;
  const std::uint32_t rest = x.bits & 0x7fff;
  // Shifted into place the exponent is 112 too low; a product fixes that and normalises denormals.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const std::uint32_t magnitude =
      rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(sign | magnitude);
}

// Returns number `offset` of an array, widened to float.
[[nodiscard]] inline float float_at(DType type, const void* data, std::int64_t offset) {
  switch (type) {
    case DType::f32:
      return static_cast<const float*>(data)[offset];
    case DType::bf16:
      return to_float(static_cast<const BFloat16*>(data)[offset]);
    case DType::f16:
      return to_float(static_cast<const Float16*>(data)[offset]);
    case DType::i8:
      return static_cast<const std::int8_t*>(data)[offset];
  }
  return 0;
}
inline float ConstTensor::operator()(std::int64_t i0, std::int64_t i1, std::int64_t i2,
                                     std::int64_t i3) const {
  return float_at(type, data,
                  i0 * strides[0] + i1 * strides[1] + i2 * strides[2] + i3 * strides[3]);
}

// Rounds to the nearest T, ties to even. NaN stays NaN; numbers too large for T become Inf.
template <typename T>
[[nodiscard]] T from_float(float x);

template <>
[[nodiscard]] inline float from_float<float>(float x) {
  return x;
}
template <>
[[nodiscard]] inline BFloat16 from_float<BFloat16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <>
[[nodiscard]] inline Float16 from_float<Float16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<std::uint16_t>(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return {static_cast<std::uint16_t>(sign | 0x7c00)};  // >= 65520
  if (magnitude < 0x38800000) {
    // Below 2^-14 halves are multiples of 2^-24: adding 2^-1 leaves it, rounded, in the mantissa.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000))};
  }
  const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<std::uint16_t>(sign | (rounded - 0x38000000) >> 13)};
}

}  // namespace isentrope
