// Problems and their numbers from a fuzzer's bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tests/fuzz/byte_source.h"
#include "tools/check/data.h"

namespace isentrope::fuzz {

inline check::Problem problem_from(ByteSource& bytes) {
  check::Problem p;
  p.type = bytes.one_of({DType::f32, DType::bf16, DType::f16});
  p.batch = bytes.one_of({1, 2, 0});
  p.kv_heads = bytes.one_of({1, 2, 3});
  p.heads = p.kv_heads * bytes.one_of({1, 2, 4});
  p.queries = bytes.up_to(9);
  p.keys = bytes.up_to(bytes.byte() % 16 == 1 ? 280 : 20);
  p.dim = 1 + bytes.up_to(17);
  p.value_dim = 1 + bytes.up_to(17);
  p.causal = bytes.one_of({Causal::none, Causal::top_left, Causal::bottom_right});
  p.window_left = bytes.one_of({-1, 0, 1, 5, 40});
  p.window_right = bytes.one_of({-1, 0, 1, 5, 40});
  if (bytes.flag()) {
    p.query_offset = bytes.up_to(300);
    p.key_offset = bytes.up_to(300);
  }
  const std::uint8_t flags = bytes.byte();
  p.left_padding = flags & 1;
  p.right_padding = flags & 2;
  p.lambda_table = flags & 4;
  p.bias = flags & 8;
  p.admitted = flags & 16;
  p.sink = flags & 32;
  p.documents = flags & 64 ? 1 + bytes.up_to(3) : 0;
  if (flags & 128) p.soft_cap = bytes.one_of({0.5f, 5.0f, 30.0f});
  static const std::vector<ScaleRule> rules = ScaleRule::all(16);
  p.rule = rules[bytes.byte() % rules.size()];
  p.magnitude = bytes.one_of({1.0, 0.0, 1e-3, 20.0});
  p.seed = bytes.byte();
  for (const check::MaskWord& word : check::kMaskWords) {
    if (bytes.flag() && word.fits(p)) p.*word.number = bytes.up_to(40);
  }
  if (bytes.flag()) {
    p.dropout = bytes.one_of({0.1, 0.5, 0.95, 1e-9});
    p.dropout_seed = std::uint64_t{bytes.byte()} << 33 | bytes.byte();
  }
  return p;
}

// Overwrites some numbers with edge cases. The largest leave room for sums in float, and keep the
// rounding of denormals below the floor of the budgets.
inline void sprinkle(ByteSource& bytes, bool finite_only, check::Data& data) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  while (!bytes.empty()) {
    auto& numbers = *bytes.one_of({&data.q, &data.k, &data.v});
    const DType type = &numbers == &data.q ? data.problem.type : type_of_keys(data.problem);
    const auto at = static_cast<std::size_t>(bytes.up_to(65535));
    float value = bytes.one_of({0.0f, -0.0f, 1e-40f, -1e-38f, 1.0f, -1.0f, 6e4f, -6e4f, 1e12f,
                                kInfinity, -kInfinity, kNaN});
    if (finite_only && !(std::abs(value) < 2)) value = 2;
    // If the heaviest key is dropped, kernels treat remaining weights below 2^-127 as 0. Times
    // values of 1e12, that would exceed the floor of the budgets.
    if (data.problem.dropout > 0 && std::isfinite(value)) value = std::clamp(value, -6e4f, 6e4f);
    if (!numbers.empty()) numbers[at % numbers.size()] = check::rounded_to(type, value);
  }
  data.refresh();
}

// Whether lambda q in log2 overflows float: its product with 0 is NaN, and the reference has 0.
inline bool overflows(const check::Data& data, double lambda, std::size_t row) {
  const auto dim = static_cast<std::size_t>(data.problem.dim);
  const auto begin = data.q.begin() + static_cast<std::ptrdiff_t>(row * dim);
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(dim), [&](float q) {
    return std::isfinite(q) &&
           std::abs(std::numbers::log2e * lambda * q) > std::numeric_limits<float>::max();
  });
}

// Whether logits are too uncertain for first-order budgets: equal keys in float, or infinities.
inline bool is_uncertain(const check::Data& data, const reference::Result& want, std::size_t row) {
  const double rounding = static_cast<double>(data.problem.dim + 16) * 0x1p-24;
  return !(rounding * want.logit_magnitude[row] < 0.03) || overflows(data, want.lambda[row], row);
}

}  // namespace isentrope::fuzz
