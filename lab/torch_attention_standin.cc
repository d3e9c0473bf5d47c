#include <ATen/ATen.h>

#include "torch/attention.h"

namespace isentrope {

TorchAttention torch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ScaleRule& rule,
                               const Mask&) {
  const std::int64_t n = k.size(2);
  const double lambda = rule.lambda({n, n - 1, n}, q.size(3));
  const at::Tensor z = at::matmul(q * lambda, k.transpose(-1, -2));
  const at::Tensor p = at::softmax(z, -1);
  TorchAttention result;
  result.output = at::matmul(p, v);
  result.lse = at::logsumexp(z.detach(), -1);
  result.entropy = result.lse - (p.detach() * z.detach()).sum(-1);
  result.collision = p.detach().square().sum(-1);
  result.lambda = at::full_like(result.lse, lambda);
  return result;
}

}  // namespace isentrope
