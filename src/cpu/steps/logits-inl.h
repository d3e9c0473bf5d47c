// Steps between the scaled score and the softmax: soft-cap, bias, boolean mask.

#if defined(ISENTROPE_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_LOGITS_INL_H_
#undef ISENTROPE_LOGITS_INL_H_
#else
#define ISENTROPE_LOGITS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "isentrope/attention.h"
#include "src/call/scale_table.h"
#include "src/cpu/product/load-inl.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/steps/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Converts a factor of logits to log2, saturating to a finite value if it was finite.
HWY_INLINE float scale_log2(float scale) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(kLog2E * static_cast<double>(scale), -kMost, kMost));
}

// Soft-cap, bias and mask of one row, from the first key of its tile on.
struct LogitTerms {
  float soft_cap = 0, after_cap = 1, on_bias = 1;
  std::size_t stride = 1;  // stride of the keys in the row's range
  const void* bias = nullptr;
  DType bias_type = DType::f32;
  std::int64_t bias_stride = 0;
  const std::uint8_t* mask = nullptr;
  std::int64_t mask_stride = 0;

  // Returns whether boolean mask or bias hide this key from the row.
  [[nodiscard]] bool is_masked(std::int64_t key) const {
    return (mask && mask[key * mask_stride] == 0) ||
           (bias && bias_at(key) == -std::numeric_limits<float>::infinity());
  }
  [[nodiscard]] float bias_at(std::int64_t key) const {
    return float_at(bias_type, bias, key * bias_stride);
  }
};

// Returns the terms of row `query` of a head, from key `first` on. Bias and mask are addressed by
// pointers to the row, because both may have any strides, also 0.
HWY_INLINE LogitTerms logit_terms(const AttentionOptions& options, const HeadScale& scale,
                                  std::int64_t batch, std::int64_t head, std::int64_t query,
                                  std::int64_t first) {
  LogitTerms terms{.soft_cap = options.soft_cap,
                   .after_cap = scale.after_cap[query],
                   .on_bias = scale.on_bias[query]};
  if (options.bias) {
    const auto& [data, type, extents, strides] = options.bias;
    terms.bias = static_cast<const std::byte*>(data) +
                 size_of(type) * (batch * strides[0] + head * strides[1] + query * strides[2] +
                                  first * strides[3]);
    terms.bias_type = type;
    terms.bias_stride = strides[3];
  }
  if (options.attn_mask) {
    terms.mask = &options.attn_mask(batch, head, query, first);
    terms.mask_stride = options.attn_mask.strides[3];
  }
  return terms;
}

// tanh, and its slope 1 - tanh^2.
struct Tanh {
  hn::Vec<Floats> value, slope;
};

// Computes both from e = e^(-2|x|). Near 0 a series keeps digits that the quotient loses: 3e-10 at
// the switch. The slope 4 e / (1 + e)^2 does not cancel: saturated caps pass gradients below 1e-6.
HWY_INLINE Tanh tanh_of(hn::Vec<Floats> x) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f), size = hn::Abs(x);
  auto t = hn::Mul(hn::Set(d, static_cast<float>(-2 * kLog2E)), size);
  const auto e = weight_of(t);
  const auto share = hn::Div(one, hn::Add(one, e));
  const auto quotient = hn::Mul(hn::Sub(one, e), share);
  const auto square = hn::Mul(x, x);
  auto series = hn::MulAdd(square, hn::Set(d, -17.0f / 315), hn::Set(d, 2.0f / 15));
  series = hn::MulAdd(series, square, hn::Set(d, -1.0f / 3));
  series = hn::MulAdd(hn::Mul(series, square), size, size);
  const auto result = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.1f)), series, quotient);
  const auto slope = hn::Mul(hn::Mul(hn::Set(d, 4.0f), e), hn::Mul(share, share));
  return {hn::CopySign(result, x), slope};
}

// Derivatives of a capped logit with respect to the logit, of first and second order, for each key;
// null if not needed. A logit's unit of log2 cancels in the first; the second is per nat.
struct CapDerivatives {
  float* slopes = nullptr;
  float* curvatures = nullptr;
};

// Soft-caps logits[0, columns) in place, rounded up to whole vectors (there must be room). Bias and
// mask, of fewer calls, are read key by key.
HWY_INLINE void cap_logits(const LogitTerms& terms, std::size_t columns, float* HWY_RESTRICT logits,
                           const CapDerivatives& derivatives) {
  const Floats d;
  const auto cap = hn::Set(d, scale_log2(terms.soft_cap)), after = hn::Set(d, terms.after_cap);
  const auto bend = hn::Set(d, -2 / terms.soft_cap);
  for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
    const Tanh tanh = tanh_of(hn::Div(hn::Load(d, logits + j), cap));
    const auto slope = hn::Mul(after, tanh.slope);
    hn::Store(hn::Mul(after, hn::Mul(cap, tanh.value)), d, logits + j);
    if (derivatives.slopes) hn::Store(slope, d, derivatives.slopes + j);
    // (tanh x)'' = -2 tanh x (tanh x)'
    if (derivatives.curvatures)
      hn::Store(hn::Mul(hn::Mul(bend, tanh.value), slope), d, derivatives.curvatures + j);
  }
}

// Adds factor times the bias to logits[j ...] in whole vectors below `end`, and advances j. Returns
// how many keys a bias of -inf does not hide.
template <typename T>
HWY_INLINE std::int64_t add_bias(const T* HWY_RESTRICT bias, float factor, std::size_t end,
                                 float* HWY_RESTRICT logits, std::size_t& j) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::int64_t support = 0;
  for (; j + lanes <= end; j += lanes) {
    const auto numbers = load_floats(d, bias + j);
    const auto hides = hn::Eq(numbers, hidden);
    const auto sum = hn::MulAdd(hn::Set(d, factor), numbers, hn::LoadU(d, logits + j));
    hn::StoreU(hn::IfThenElse(hides, hidden, sum), d, logits + j);
    support += static_cast<std::int64_t>(lanes - hn::CountTrue(d, hides));
  }
  return support;
}

// Turns scaled scores into logits, both in log2. Returns how many keys of [begin, end), every
// stride-th of which is in the row's range, the row sees. Keys hidden by the boolean mask or a bias
// of -inf become -inf by selection. Columns past `end` may be soft-capped.
HWY_INLINE std::int64_t finish_logits(const LogitTerms& terms, std::size_t begin, std::size_t end,
                                      std::size_t columns, float* HWY_RESTRICT logits,
                                      const CapDerivatives& derivatives = {}) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  if (terms.soft_cap > 0) cap_logits(terms, columns, logits, derivatives);
  // The caller's bias is in nats.
  const float on_bias = scale_log2(terms.on_bias);
  std::int64_t support = 0;
  std::size_t j = begin;
  if (terms.bias && !terms.mask && terms.bias_stride == 1 && terms.stride == 1) {
    for_type(terms.bias_type, [&](auto type) HWY_ATTR {
      support += add_bias(static_cast<const decltype(type)*>(terms.bias), on_bias, end, logits, j);
    });
  }
  for (; j < end; j += terms.stride) {
    const auto key = static_cast<std::int64_t>(j);
    const bool masked = terms.is_masked(key);
    const float bias = terms.bias ? on_bias * terms.bias_at(key) : 0;
    logits[j] = masked ? kMasked : logits[j] + bias;
    support += !masked;
  }
  return support;
}

// Tangent of the bias of one row, from the first key of its tile on; without data it is zero.
struct BiasTangent {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

// Turns tangents of scaled scores into those of logits, in nats, for the same keys. `slopes` is
// read under a soft-cap only. Hidden keys become 0 by selection.
HWY_INLINE void finish_tangents(const LogitTerms& terms, const BiasTangent& bias, std::size_t begin,
                                std::size_t end, const float* HWY_RESTRICT slopes,
                                float* HWY_RESTRICT tangents) {
  for (std::size_t j = begin; j < end; j += terms.stride) {
    const auto key = static_cast<std::int64_t>(j);
    float tangent = terms.soft_cap > 0 ? slopes[j] * tangents[j] : tangents[j];
    if (bias.data) tangent += terms.on_bias * bias.data[key * bias.stride];
    tangents[j] = terms.is_masked(key) ? 0 : tangent;
  }
}

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
