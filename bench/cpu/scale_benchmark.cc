// Times rules and solvers:
//   build/release/bin/scale_benchmark --benchmark_filter=lambda
// `isentrope bench` times the operator.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "isentrope/scale_rule.h"
#include "isentrope/theory/gradient.h"

namespace isentrope {
namespace {

constexpr std::int64_t kDim = 128;

void million_lambdas(benchmark::State& state, const ScaleRule& rule) {
  for (auto _ : state) {
    double sum = 0;
    for (std::int64_t n = 1; n <= 1000000; ++n) sum += rule.lambda({n, n - 1, n}, kDim);
    benchmark::DoNotOptimize(sum);
  }
}

void cosine_optima(benchmark::State& state) {
  for (auto _ : state) {
    double sum = 0;
    for (int n = 40; n <= 20000; n += 40) sum += theory::cosine_optimum(n, kDim);
    benchmark::DoNotOptimize(sum);
  }
}

}  // namespace
}  // namespace isentrope

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const isentrope::ScaleRule& rule : isentrope::ScaleRule::all()) {
    benchmark::RegisterBenchmark(
        ("million_lambdas/" + rule.text()).c_str(),
        [rule](benchmark::State& state) { isentrope::million_lambdas(state, rule); })
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("500_cosine_optima", isentrope::cosine_optima)
      ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
}
