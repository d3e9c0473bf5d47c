// Tangents of the queries, with those of their scales.
#pragma once

#include <vector>

#include "isentrope/derivatives.h"
#include "src/call/scale_table.h"

namespace isentrope {

// The tangent of a scaled query lambda q is lambda q' + lambda' q. With a tangent of lambda that
// sum takes the place of q', in f32; kernels then multiply it by 1 instead of lambda.
class QueryTangents {
 public:
  QueryTangents(const AttentionInput& input, const ScaleTable& scale,
                const AttentionTangents& tangents, const ParallelFor& parallel_for);

  // Without data if both tangents are zero.
  [[nodiscard]] const ConstTensor& tensor() const { return tensor_; }
  [[nodiscard]] bool are_scaled() const { return !scaled_.empty(); }

 private:
  ConstTensor tensor_;
  std::vector<float> scaled_;
};

}  // namespace isentrope
