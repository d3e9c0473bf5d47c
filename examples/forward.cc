// Attention with a length rule, and the statistics of every row.

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "isentrope/attention.h"

using namespace isentrope;

// Mean entropy of random queries over n random keys, whose logits have a
// standard deviation of 3 at n = 512.
double mean_entropy(std::int64_t n, const ScaleRule& rule) {
  constexpr std::int64_t kQueries = 64, kDim = 64;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(kQueries * kDim), k(static_cast<std::size_t>(n * kDim)),
      output(kQueries * kDim);
  for (float& x : q) x = 3 * normal(random);
  for (float& x : k) x = normal(random);
  std::vector<float> entropy(kQueries);

  const auto keys = contiguous_view<float, 4>(k.data(), {1, 1, n, kDim});
  attention_forward(
      {.q = contiguous_view<float, 4>(q.data(), {1, 1, kQueries, kDim}),
       .k = keys,
       .v = keys},
      {.rule = rule},
      {.output =
           contiguous_view<float, 4>(output.data(), {1, 1, kQueries, kDim}),
       .statistics = {.entropy = contiguous_view<float, 3>(entropy.data(),
                                                           {1, 1, kQueries})}});
  double sum = 0;
  for (const float x : entropy) sum += static_cast<double>(x);
  return sum / kQueries;
}

int main() {
  std::puts(
      "Mean entropy of a row in nats. A constant scale spreads attention ever "
      "more thinly:\n");
  std::puts("  keys    standard    entropy_invariant(base=512)");
  for (std::int64_t n = 128; n <= 8192; n *= 4) {
    std::printf("%6lld    %8.2f    %8.2f\n", static_cast<long long>(n),
                mean_entropy(n, ScaleRule::standard()),
                mean_entropy(n, ScaleRule::entropy_invariant(512)));
  }
}
