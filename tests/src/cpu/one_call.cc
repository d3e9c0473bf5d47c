// Program for instruction_counts.py. The argument selects a problem, run once on AVX2 and one
// thread; `lambda` of every rule; or `cosine optima`.

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "isentrope/scale_rule.h"
#include "isentrope/target.h"
#include "src/rules/cosine_optimum.h"
#include "tools/check/measure.h"

namespace isentrope {

// Evaluates each rule at a thousand lengths.
[[gnu::noinline]] double counted_lambdas(const std::vector<ScaleRule>& rules) {
  double sum = 0;
  for (const ScaleRule& rule : rules) {
    for (std::int64_t n = 1; n <= 1'000'000; n += 1000) sum += rule.lambda({n, n - 1, n}, 128);
  }
  return sum;
}

// Solves over the range of Su 2023's figure.
[[gnu::noinline]] double counted_optima() {
  double sum = 0;
  for (int n = 40; n <= 20000; n += 40) sum += cosine_optimum(n, 128);
  return sum;
}

}  // namespace isentrope

int main(int argc, char** argv) {
  using namespace isentrope;
  if (argc != 2) return 2;
  const std::string_view what = argv[1];
  if (what == "lambda" || what == "cosine optima") {
    const double sum = what == "lambda" ? counted_lambdas(ScaleRule::all()) : counted_optima();
    return std::printf("%g\n", sum) > 0 ? 0 : 1;
  }
  use_target("AVX2");
  check::PreparedCall(check::parse_problem(argv[1]), run_serially).run();
  return 0;
}
