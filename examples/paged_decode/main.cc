#include <cstdio>
#include <vector>

#include "isentrope/attention.h"

using namespace isentrope;

int main() {
  constexpr std::int64_t kHeads = 8, kKeyHeads = 2, kDim = 64;
  constexpr std::int64_t kPage = 16, kPages = 8, kUsed = 100;
  std::vector<float> q(kHeads * kDim, 0.1f), output(q.size()), entropy(kHeads);
  std::vector<float> keys(kPages * kKeyHeads * kPage * kDim, 0.2f);
  std::vector<float> values = keys;
  // Pages of the one sequence, in order.
  const std::vector<std::int32_t> pages = {5, 2, 7, 0, 1, 6, 3};
  const std::vector<std::int64_t> used = {kUsed};  // the last page is not full

  const auto cache = [](std::vector<float>& x) {
    return contiguous_view<const float, 4>(x.data(),
                                           {kPages, kKeyHeads, kPage, kDim});
  };
  attention_forward(
      {.q = contiguous_view<const float, 4>(q.data(), {1, kHeads, 1, kDim}),
       .k = cache(keys),
       .v = cache(values),
       .pages = {contiguous_view<const std::int32_t, 2>(pages.data(), {1, 7}),
                 kUsed}},
      {.rule = ScaleRule::logn(64),
       .mask = {.causal = Causal::bottom_right,
                .key_end =
                    contiguous_view<const std::int64_t, 1>(used.data(), {1})}},
      {contiguous_view<float, 4>(output.data(), {1, kHeads, 1, kDim}),
       {.entropy = contiguous_view<float, 3>(entropy.data(), {1, kHeads, 1})}});
  std::printf("output %.1f, entropy %.2f nats over %d keys\n", output[0],
              entropy[0], int{kUsed});
}
