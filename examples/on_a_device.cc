// on_a_device KERNELS: attention on an NVIDIA device without Python, from a
// folder of kernels that src/gpu/kernels.py compiled: a causal call in bf16,
// and the entropy of its rows.

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "isentrope/cuda/attention.h"
#include "isentrope/error.h"

using namespace isentrope;

namespace {

constexpr std::int64_t kHeads = 8, kRows = 1024, kDim = 64;
constexpr std::size_t kNumbers = kHeads * kRows * kDim;

std::vector<BFloat16> random_numbers(std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<BFloat16> numbers(kNumbers);
  for (BFloat16& x : numbers) x = from_float<BFloat16>(normal(random));
  return numbers;
}

View<BFloat16, 4> view(const cuda::Memory& memory) {
  return contiguous_view<BFloat16, 4>(static_cast<BFloat16*>(memory.data()),
                                      {1, kHeads, kRows, kDim});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2)
    throw Error("[on_a_device] KERNELS must be a folder; got no argument");
  const cuda::Device device(argv[1]);
  std::mt19937 random(1);
  std::vector<cuda::Memory> memory;  // q, k, v and the output
  memory.reserve(4);
  for (int i = 0; i < 4; ++i) {
    memory.emplace_back(device, kNumbers * sizeof(BFloat16));
    if (i < 3) memory.back().write(random_numbers(random).data());
  }
  const cuda::Memory entropy(device, kHeads * kRows * sizeof(float));

  cuda::attention_forward(
      {.q = view(memory[0]), .k = view(memory[1]), .v = view(memory[2])},
      {.rule = ScaleRule::entropy_invariant(512),
       .mask = {.causal = Causal::bottom_right}},
      {.output = view(memory[3]),
       .statistics = {.entropy = contiguous_view<float, 3>(
                          static_cast<float*>(entropy.data()),
                          {1, kHeads, kRows})}},
      {.device = device});

  std::vector<float> entropies(kHeads * kRows);
  entropy.read(entropies.data());  // waits for the device
  double sum = 0;
  for (const float x : entropies) sum += static_cast<double>(x);
  std::printf("mean entropy of %zu rows: %.3f nats\n", entropies.size(),
              sum / static_cast<double>(entropies.size()));
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
