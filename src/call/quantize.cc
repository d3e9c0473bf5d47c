#include "isentrope/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "src/call/array_overlaps.h"

namespace isentrope {
namespace {

constexpr float kMostCode = 127;

void validate(const ConstTensor& rows, const View<std::int8_t, 4>& codes,
              const View<float, 4>& scales) {
  ArrayOverlaps check("quantize");
  check.not_codes("rows", rows.type);
  const auto [outer, heads, count, columns] = rows.extents;
  for (const std::int64_t extent : rows.extents) {
    if (extent < 0) check.fail("rows", "have no negative extent", text_of(rows.extents));
  }
  check.read("rows", rows, rows.extents);
  check.write("codes", codes, rows.extents);
  check.groups("scales", scales.extents[3], columns);
  check.write("scales", scales, Shape<4>{outer, heads, count, scales.extents[3]});
}

// Below 2^-126 a scale would be denormal; above the float maximum / 127, dequantizing overflows.
float scale_of(float largest) {
  constexpr float kMost = 0x1.020406p121f;
  return std::clamp(largest / kMostCode, std::numeric_limits<float>::min(), kMost);
}

// Adding 1.5 * 2^23 rounds a number to an integer in the low bits of the sum.
std::int8_t code_of(float quotient) {
  return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(quotient + 0x1.8p23f));
}

template <typename T>
void quantize_group(const T* from, std::int64_t stride, std::int64_t columns, std::int8_t* codes,
                    std::int64_t codes_stride, float* scale) {
  float largest = 0, poison = 0;  // 0 * inf and 0 * NaN are NaN
  for (std::int64_t c = 0; c < columns; ++c) {
    const float x = to_float(from[c * stride]);
    largest = std::max(largest, std::abs(x));
    poison += 0 * x;
  }
  *scale = scale_of(largest) + poison;
  for (std::int64_t c = 0; c < columns; ++c) {
    codes[c * codes_stride] = poison == 0 ? code_of(to_float(from[c * stride]) / *scale) : 0;
  }
}

}  // namespace

void quantize(const ConstTensor& rows, const View<std::int8_t, 4>& codes,
              const View<float, 4>& scales) {
  validate(rows, codes, scales);
  const std::int64_t heads = rows.extents[1], count = rows.extents[2];
  const std::int64_t groups = scales.extents[3], group = rows.extents[3] / groups;
  const std::int64_t all = rows.extents[0] * heads * count * groups;
  const auto quantize_rows = [&](const auto* data) {
    using T = std::remove_cvref_t<decltype(*data)>;
    const View<const T, 4> from{data, rows.extents, rows.strides};
    for (std::int64_t i = 0; i < all; ++i) {
      const std::int64_t g = i % groups, row = i / groups % count;
      const std::int64_t head = i / groups / count % heads, batch = i / groups / count / heads;
      quantize_group(&from(batch, head, row, g * group), rows.strides[3], group,
                     &codes(batch, head, row, g * group), codes.strides[3],
                     &scales(batch, head, row, g));
    }
  };
  if (rows.type == DType::f32) return quantize_rows(static_cast<const float*>(rows.data));
  if (rows.type == DType::bf16) return quantize_rows(static_cast<const BFloat16*>(rows.data));
  quantize_rows(static_cast<const Float16*>(rows.data));
}

}  // namespace isentrope
