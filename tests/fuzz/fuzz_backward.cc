// Fuzz target: the backward pass of every instruction set against the float64 reference.

#include "isentrope/target.h"
#include "tests/fuzz/problem_source.h"
#include "tools/check/judge.h"

namespace isentrope::fuzz {
namespace {

void run(ByteSource bytes) {
  check::Problem p = problem_from(bytes);
  // Budgets of sharper rows exceed float; fuzz_forward covers these.
  p.magnitude = std::fmin(p.magnitude, 1);
  static const std::vector<std::string> targets = supported_targets();
  use_target(targets[bytes.byte() % targets.size()]);
  check::Data data(p);
  sprinkle(bytes, true, data);
  const reference::Result forward =
      reference::attention_forward(data.reference_input(), data.options());
  for (std::size_t row = 0; row < forward.lambda.size(); ++row) {
    if (is_uncertain(data, forward, row)) return;
  }
  const reference::GradientInput gradient = check::random_gradient(p);
  const check::BackwardResult got = run_backward(data, run_forward(data), gradient);
  const check::Ratio ratio = backward_error_over_budget(data, gradient, got);
  require(ratio.worst <= 1,
          [&] { return text_of(p) + " on " + active_target() + ": " + ratio.where; });
}

}  // namespace
}  // namespace isentrope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size <= 256) isentrope::fuzz::run({data, size});
  return 0;
}
