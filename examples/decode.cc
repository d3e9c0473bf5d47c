// Decoding with a cache in two places. Each part attends separately, and their
// states are merged, so only a few bytes a row are exchanged.

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "isentrope/attention_state.h"

using namespace isentrope;

namespace {

constexpr std::int64_t kHeads = 8, kKeyHeads = 2, kDim = 64, kKeys = 6000,
                       kHere = 2500;

// Keys begin ... end - 1 of a cache [1, key heads, keys, dim].
ConstTensor part(const std::vector<float>& cache, std::int64_t begin,
                 std::int64_t end) {
  auto view = contiguous_view<const float, 4>(cache.data(),
                                              {1, kKeyHeads, kKeys, kDim});
  view.data += begin * view.strides[2];
  view.extents[2] = end - begin;
  return view;
}

}  // namespace

int main() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> q(kHeads * kDim), k(kKeyHeads * kKeys * kDim), v(k.size());
  for (auto* numbers : {&q, &k, &v}) {
    for (float& x : *numbers) x = normal(random);
  }
  const ConstTensor query =
      contiguous_view<const float, 4>(q.data(), {1, kHeads, 1, kDim});

  // The rule counts the keys of the whole sequence, in both places.
  const auto options = [](std::int64_t first_key) {
    return AttentionOptions{
        .rule = ScaleRule::entropy_invariant(512),
        .mask = {.key_offset = first_key, .sequence_keys = kKeys}};
  };
  const auto state_of = [&](std::int64_t begin, std::int64_t end) {
    return attention_state(
        {.q = query, .k = part(k, begin, end), .v = part(v, begin, end)},
        options(begin));
  };
  const std::vector<std::byte> sent = to_bytes(state_of(kHere, kKeys));
  const AttentionState merged =
      merge(state_of(0, kHere), state_from_bytes(sent));
  const AttentionState whole = state_of(0, kKeys);

  float difference = 0;
  for (std::size_t i = 0; i < whole.output.size(); ++i) {
    difference =
        std::fmax(difference, std::abs(merged.output[i] - whole.output[i]));
  }
  std::printf(
      "%lld keys here, %lld there, %zu bytes sent instead of %lld\n",
      static_cast<long long>(kHere), static_cast<long long>(kKeys - kHere),
      sent.size(),
      static_cast<long long>((kKeys - kHere) * kKeyHeads * kDim * 2 * 4));
  std::printf("largest difference from the whole cache at once: %.1e\n\n",
              static_cast<double>(difference));
  std::puts("head     keys seen    effective keys    entropy, nats");
  for (std::size_t head = 0; head < kHeads; ++head) {
    const RowStats& row = merged.statistics[head];
    std::printf("%4zu    %10lld    %14.1f    %13.3f\n", head,
                static_cast<long long>(row.support), 1 / row.collision,
                row.entropy);
  }
  return difference < 1e-5f ? 0 : 1;
}
