#include "tools/check/judge.h"

#include <algorithm>
#include <cmath>

#include "src/cpu/product/pair_kernels.h"

namespace isentrope::check {
namespace {

// Largest fraction of zeros and NaN in an output: beyond it, a kernel that never ran would pass.
constexpr double kMostTelling = 0.9;

bool tells_little(const std::vector<double>& output) {
  const auto silent = std::count_if(output.begin(), output.end(),
                                    [](double x) { return x == 0 || !std::isfinite(x); });
  return static_cast<double>(silent) > kMostTelling * static_cast<double>(output.size());
}

}  // namespace

Arithmetic arithmetic_of(const Data& data, const reference::Result& want) {
  Arithmetic arithmetic{.rounds_f16_weights = pair_kernels(DType::f16) != nullptr,
                        .rounds_queries = pair_kernels(DType::bf16) != nullptr};
  if (data.problem.cache_group > 0) add_cache_errors(data, want, arithmetic);
  return arithmetic;
}

Ratio forward_error_over_budget(const Data& data, const ForwardResult& got) {
  const reference::Result want =
      reference::attention_forward(data.reference_input(), data.options());
  const Arithmetic arithmetic = arithmetic_of(data, want);
  Ratio ratio = forward_error_over_budget(data.problem, want, got, arithmetic);
  add_key_statistics_error(reference_key_statistics(data, want, arithmetic), got, ratio);
  return ratio;
}

Ratio backward_error_over_budget(const Data& data, const reference::GradientInput& gradient,
                                 const BackwardResult& got) {
  const reference::Input input = data.reference_input();
  const reference::Result forward = reference::attention_forward(input, data.options());
  return backward_error_over_budget(data.problem, forward,
                                    reference::attention_backward(input, data.options(), gradient),
                                    got, arithmetic_of(data, forward));
}

const char* name_of(Outcome outcome) {
  constexpr const char* kNames[] = {"PASSED", "FAILED", "MISTRUSTED", "SKIPPED"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Judge::Judge(const Problem& problem) : data_(problem) {
  // Runs the validator only, without tasks, because the reference trusts its input.
  (void)run_forward(data_, data_.options([](std::int64_t, const auto&) {}));
  forward_ = reference::attention_forward(data_.reference_input(), data_.options());
  keys_ = reference_key_statistics(data_, forward_, arithmetic_of(data_, forward_));
  if (!problem.backward || problem.page_size > 0 || problem.cache_group > 0) return;
  upstream_ = random_gradient(problem);
  const reference::Input input = data_.reference_input();
  backward_ = reference::attention_backward(input, data_.options(), *upstream_);
  if (!problem.second_order) return;
  tangents_ = random_tangents(problem);
  const reference::Input tangent = tangents_->input(problem);
  tangent_ = reference::attention_tangent(input, data_.options(), tangent);
  second_order_ = reference::attention_second_order(input, data_.options(), tangent, *upstream_);
}

Verdict Judge::judge() const {
  if (data_.problem.backward && !backward_) {
    return {.outcome = Outcome::skipped,
            .reason = data_.problem.page_size > 0 ? "paged keys have no backward pass"
                                                  : "a cache in 8 bits has no backward pass"};
  }
  const ForwardResult forward = run_forward(data_);
  const Arithmetic arithmetic = arithmetic_of(data_, forward_);
  if (!backward_) return judge(forward, nullptr, arithmetic);
  const BackwardResult backward = run_backward(data_, forward, *upstream_);
  Verdict verdict = judge(forward, &backward, arithmetic);
  if (!second_order_) return verdict;
  const TangentResult tangent = run_tangent(data_, forward, *tangents_);
  const Problem& p = data_.problem;
  verdict.tangent = tangent_error_over_budget(p, forward_, *tangent_, tangent, arithmetic);
  verdict.second_order = second_order_error_over_budget(
      p, forward_, tangent, *second_order_,
      run_second_order(data_, forward, *tangents_, tangent, *upstream_), arithmetic);
  if (!(verdict.worst().worst <= 1)) verdict.outcome = Outcome::failed;
  return verdict;
}

Verdict Judge::judge(const ForwardResult& forward, const BackwardResult* backward,
                     const Arithmetic& arithmetic) const {
  const Problem& p = data_.problem;
  Verdict verdict;
  verdict.forward = forward_error_over_budget(p, forward_, forward, arithmetic);
  add_key_statistics_error(keys_, forward, verdict.forward);
  if (backward_ && backward != nullptr) {
    verdict.backward = backward_error_over_budget(p, forward_, *backward_, *backward, arithmetic);
  }
  if (!(verdict.worst().worst <= 1)) {
    verdict.outcome = Outcome::failed;
  } else if (tells_little(forward_.output)) {
    verdict.outcome = Outcome::mistrusted;
    verdict.reason = "most outputs are 0 or not finite";
  }
  return verdict;
}

}  // namespace isentrope::check
