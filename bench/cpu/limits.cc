#include "bench/cpu/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/cpu/limits.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <chrono>
#include <vector>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/pair_kernels.h"
#include "src/cpu/steps/softmax_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// Keeps results alive and hides the operands from the compiler.
volatile float observed = 0.5f;

// Returns the work a second, the best of a few runs, because disturbances only slow it down.
template <typename Run>
double best_rate(double work, const Run& run) {
  double best = 0;
  for (int repetition = 0; repetition < 10; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, work / seconds.count());
  }
  return best;
}

// Enough sums to hide the latency of an operation, within 16 registers.
constexpr std::size_t kSums = 12;

void multiply_and_add(std::size_t times) {
  const Floats d;
  const auto factor = hn::Set(d, observed);
  hn::Vec<Floats> sums[kSums];
#pragma GCC unroll 16
  for (auto& sum : sums) sum = hn::Set(d, observed);  // hidden from the compiler
  for (std::size_t i = 0; i < times; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = hn::MulAdd(sum, factor, factor);
  }
#pragma GCC unroll 16
  for (auto& sum : sums) observed = hn::GetLane(sum);
}

// Returns the peak of multiplications, by which tables divide speeds.
double fused_multiply_adds() {
  constexpr std::size_t kTimes = 200'000;
  const auto flops = static_cast<double>(2 * kSums * hn::Lanes(Floats()) * kTimes);
  return best_rate(flops, [] { multiply_and_add(kTimes); });
}

// Returns the peak of bf16 dot products, the limit of scores and value sums of bf16 calls. Only
// targets with their tiles use them.
double bf16_dot_products() {
  constexpr std::size_t kTimes = 200'000;
  const PairKernels* kernels = pair_kernels(DType::bf16);
  if (!kernels || kernels->columns != panel_width()) return 0;
  const auto flops = static_cast<double>(kernels->run_dot_products(1) * kTimes);
  return best_rate(flops, [&] { kernels->run_dot_products(kTimes); });
}

// Measures the softmax with the kernel's own code, because its limit is not known otherwise.
double softmax_weights() {
  constexpr std::size_t kTimes = 500;
  HWY_ALIGN float tile[kPanelRows * kBlockKeys] = {}, rescale[kStateRows];
  RowTileState state;
  state.clear();
  const Softmax softmax = softmax_for(kS1 | kS1Prime | kS2);
  return best_rate(static_cast<double>(panel_width() * kBlockKeys * kTimes), [&] {
    for (std::size_t i = 0; i < kTimes; ++i)
      softmax.transposed(tile, panel_width(), kBlockKeys, RowPositions(), state, rescale);
  });
}

// Reads four quarters concurrently, so that the hardware prefetches four streams: 28 GB/s, and 20
// with one.
void add_up(const float* HWY_RESTRICT from, std::size_t count) {
  const Floats d;
  const std::size_t quarter = count / 4;
  hn::Vec<Floats> sums[4];
#pragma GCC unroll 4
  for (auto& sum : sums) sum = hn::Zero(d);
  for (std::size_t i = 0; i + hn::Lanes(d) <= quarter; i += hn::Lanes(d)) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < 4; ++s)
      sums[s] = hn::Add(sums[s], hn::LoadU(d, from + s * quarter + i));
  }
#pragma GCC unroll 4
  for (auto& sum : sums) observed = hn::GetLane(sum);
}

// 256 MiB exceed every cache of the machines that this was made for.
double memory_read_of_target() {
  const std::vector<float> floats(std::size_t{1} << 26, 1.0f);
  return best_rate(static_cast<double>(floats.size() * sizeof(float)),
                   [&] { add_up(floats.data(), floats.size()); });
}

Limits limits_of_target() {
  return {
      .flops = fused_multiply_adds(), .bf16_flops = bf16_dot_products(), .exps = softmax_weights()};
}

TileSizes sizes_of_target() { return {kRegisterRows, panel_width(), kBlockKeys}; }

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(limits_of_target);
HWY_EXPORT(memory_read_of_target);
HWY_EXPORT(sizes_of_target);

Limits measure_limits() { return HWY_DYNAMIC_DISPATCH(limits_of_target)(); }
double measure_memory_read() { return HWY_DYNAMIC_DISPATCH(memory_read_of_target)(); }
TileSizes tile_sizes() { return HWY_DYNAMIC_DISPATCH(sizes_of_target)(); }

}  // namespace isentrope
#endif  // HWY_ONCE
