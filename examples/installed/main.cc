#include <cstdio>
#include <vector>

#include "isentrope/attention.h"

using namespace isentrope;

int main() {
  std::vector<float> x(1 * 8 * 1024 * 64, 0.5f), output(x.size());
  std::vector<float> entropy(1 * 8 * 1024);
  const auto q = contiguous_view<const float, 4>(x.data(), {1, 8, 1024, 64});
  attention_forward(
      {.q = q, .k = q, .v = q},
      {.rule = ScaleRule::entropy_invariant(512),
       .mask = {.causal = Causal::bottom_right}},
      {contiguous_view<float, 4>(output.data(), {1, 8, 1024, 64}),
       {.entropy = contiguous_view<float, 3>(entropy.data(), {1, 8, 1024})}});
  std::printf("%.1f nats in the last row\n", entropy.back());
}
