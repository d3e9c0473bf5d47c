// Uses the operator on libtorch tensors, with a statistic in the loss.

#include <torch/torch.h>

#include <cstdio>

#include "isentrope/libtorch/attention.h"

int main() {
  const auto q = torch::randn({1, 2, 5, 4}, torch::requires_grad());
  const auto k = torch::randn({1, 2, 5, 4}), v = torch::randn({1, 2, 5, 4});
  const auto result =
      isentrope::torch_attention(q, k, v, isentrope::ScaleRule::entropy_invariant(512));
  (result.output.mean() + result.entropy.mean()).backward();
  std::printf("entropy %.3f nats\n", result.entropy.mean().item<double>());
  return q.grad().isfinite().all().item<bool>() ? 0 : 1;
}
