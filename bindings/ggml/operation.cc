#include "bindings/ggml/operation.h"

#include <cmath>
#include <cstring>

namespace isentrope::ggml {
namespace {

// Order of ggml_flash_attn_ext()'s arguments in a node.
enum Source { kQ, kK, kV, kMask, kSinks };
enum Parameter { kScale, kMaxBias, kSoftCap };

float parameter(const ggml_tensor& node, Parameter index) {
  float value = 0;
  std::memcpy(&value, node.op_params + index, sizeof value);
  return value;
}

bool is_float(ggml_type type) {
  return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

DType dtype_of(ggml_type type) {
  return type == GGML_TYPE_F32 ? DType::f32 : type == GGML_TYPE_F16 ? DType::f16 : DType::bf16;
}

// Elements of a row are neighbours, and rows are whole elements apart.
bool has_rows(const ggml_tensor& tensor) {
  const auto size = static_cast<std::size_t>(size_of(dtype_of(tensor.type)));
  return tensor.nb[0] == size && tensor.nb[1] % size == 0 && tensor.nb[2] % size == 0 &&
         tensor.nb[3] % size == 0;
}

bool is_mask_for(const ggml_tensor& mask, const ggml_tensor& q, const ggml_tensor& k) {
  return mask.type == GGML_TYPE_F16 && has_rows(mask) && mask.ne[0] >= k.ne[1] &&
         mask.ne[1] >= q.ne[1] && (mask.ne[2] == 1 || mask.ne[2] == q.ne[2]) &&
         (mask.ne[3] == 1 || mask.ne[3] == q.ne[3]);
}

// [batch, second, first, dim] of a tensor whose axes are named from the innermost.
template <typename T>
T view_of(const ggml_tensor& tensor, int second = 2, int first = 1) {
  const auto size = static_cast<std::int64_t>(size_of(dtype_of(tensor.type)));
  const auto stride = [&](int axis) { return static_cast<std::int64_t>(tensor.nb[axis]) / size; };
  return T(tensor.data, dtype_of(tensor.type),
           {tensor.ne[3], tensor.ne[second], tensor.ne[first], tensor.ne[0]},
           {stride(3), stride(second), stride(first), 1});
}

ConstTensor bias_of(const ggml_tensor& mask, const ggml_tensor& q, const ggml_tensor& k) {
  ConstTensor bias = view_of<ConstTensor>(mask);
  bias.extents = {q.ne[3], q.ne[2], q.ne[1], k.ne[1]};
  if (mask.ne[3] == 1) bias.strides[0] = 0;
  if (mask.ne[2] == 1) bias.strides[1] = 0;
  return bias;
}

// Slopes of ALiBi (Press et al. 2022) as ggml continues them to numbers of heads that are no powers
// of two.
std::vector<float> alibi_slopes(std::int64_t heads, float max_bias) {
  const double power = std::exp2(std::floor(std::log2(static_cast<double>(heads))));
  std::vector<float> slopes;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto h = static_cast<double>(head);
    const double exponent = h < power ? (h + 1) / power : (2 * (h - power) + 1) / (2 * power);
    slopes.push_back(static_cast<float>(std::exp2(-max_bias * exponent)));
  }
  return slopes;
}

}  // namespace

bool supports(const ggml_tensor& node) {
  const ggml_tensor &q = *node.src[kQ], &k = *node.src[kK], &v = *node.src[kV];
  const ggml_tensor *mask = node.src[kMask], *sinks = node.src[kSinks];
  const float scale = parameter(node, kScale), soft_cap = parameter(node, kSoftCap);
  return q.type == GGML_TYPE_F32 && is_float(k.type) && v.type == k.type && has_rows(q) &&
         has_rows(k) && has_rows(v) && k.ne[2] == v.ne[2] && q.ne[2] % k.ne[2] == 0 &&
         k.ne[3] == q.ne[3] && v.ne[3] == q.ne[3] && (!mask || is_mask_for(*mask, q, k)) &&
         (!sinks || (sinks->type == GGML_TYPE_F32 && sinks->nb[0] == sizeof(float))) &&
         std::abs(scale) <= 1e9f && soft_cap >= 0 && std::isfinite(soft_cap);
}

bool repays_a_switch(const ggml_tensor& node) {
  // 910 keys of 9 heads of 64. Tokens after 1,024 keys came 1.5 to 2.7 times faster than the CPU's;
  // those after 256, the least that llama.cpp reads, up to 7 % slower, because threads join twice.
  constexpr std::int64_t kProducts = 1 << 20;
  const ggml_tensor &q = *node.src[kQ], &k = *node.src[kK], &v = *node.src[kV];
  return q.ne[1] * q.ne[2] * q.ne[3] * k.ne[1] * (k.ne[0] + v.ne[0]) >= kProducts;
}

Operation::Operation(const ggml_tensor& node)
    : input{.q = view_of<ConstTensor>(*node.src[kQ]),
            .k = view_of<ConstTensor>(*node.src[kK]),
            .v = view_of<ConstTensor>(*node.src[kV])},
      output{.output = view_of<Tensor>(node, 1, 2)} {
  const std::int64_t heads = input.q.extents[1];
  options.rule = ScaleRule::constant(parameter(node, kScale));
  options.soft_cap = parameter(node, kSoftCap);
  if (node.src[kMask]) {
    options.bias = bias_of(*node.src[kMask], *node.src[kQ], *node.src[kK]);
    options.bias_hides = true;
    if (const float max_bias = parameter(node, kMaxBias); max_bias > 0) {
      slopes = alibi_slopes(heads, max_bias);
      options.bias_slopes = contiguous_view<const float, 1>(slopes.data(), {heads});
    }
  }
  if (const ggml_tensor* sinks = node.src[kSinks]) {
    options.sinks = contiguous_view(static_cast<const float*>(sinks->data), std::array{heads});
  }
}

}  // namespace isentrope::ggml
