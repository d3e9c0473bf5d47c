#include "bindings/ggml/first_key.h"

#include <cmath>

namespace isentrope::ggml {
namespace {

template <typename T>
double number_at(const ConstTensor& tensor, std::int64_t offset) {
  return to_float(static_cast<const T*>(tensor.data)[offset]);
}

double number(const ConstTensor& tensor, const std::array<std::int64_t, 4>& index) {
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) offset += index[axis] * tensor.strides[axis];
  if (tensor.type == DType::f32) return number_at<float>(tensor, offset);
  if (tensor.type == DType::f16) return number_at<Float16>(tensor, offset);
  return number_at<BFloat16>(tensor, offset);
}

}  // namespace

double first_key_logit(const AttentionInput& input, const AttentionOptions& options,
                       const std::array<std::int64_t, 3>& row, std::int64_t visible) {
  const auto [batch, head, query] = row;
  const std::int64_t dim = input.q.extents[3],
                     key_head = head / (input.q.extents[1] / input.k.extents[1]);
  double score = 0;
  for (std::int64_t i = 0; i < dim; ++i)
    score += number(input.q, {batch, head, query, i}) * number(input.k, {batch, key_head, 0, i});
  const RowLength length{.visible = visible};
  const double cap = options.soft_cap;
  double logit = options.rule.pre_cap(length, dim, head) * score;
  if (cap > 0) logit = cap * std::tanh(logit / cap);
  logit *= options.rule.post_cap(length, dim, head);
  if (!options.bias) return logit;
  const double slope = options.bias_slopes ? options.bias_slopes(head) : 1;
  return logit + options.rule.on_bias(length, dim, head) * slope *
                     number(options.bias, {batch, head, query, 0});
}

}  // namespace isentrope::ggml
