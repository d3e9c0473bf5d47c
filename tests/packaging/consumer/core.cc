// Uses the C++ interface: a function of every header.

#include <cstdio>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/attention_state.h"
#include "isentrope/mask.h"
#include "isentrope/parallel.h"
#include "isentrope/reference.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_form.h"
#include "isentrope/scale_rule.h"
#include "isentrope/target.h"

int main() {
  using namespace isentrope;
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const auto view = contiguous_view<const float, 4>(numbers, {1, 1, 3, 2});
  const AttentionOptions options = {.rule = ScaleRule::entropy_invariant(),
                                    .parallel_for = run_on_pool};
  std::vector<float> output(6);
  attention_forward({view, view, view}, options,
                    {contiguous_view<float, 4>(output.data(), {1, 1, 3, 2})});

  const std::vector<double> exact_numbers(numbers, numbers + 6);
  const auto exact_view = contiguous_view<const double, 4>(exact_numbers.data(), {1, 1, 3, 2});
  const auto exact = reference::attention_forward({exact_view, exact_view, exact_view}, options);
  const double error = output[5] - exact.output[5];

  const AttentionState state = attention_state({view, view, view}, options);
  const RowView row = row_view({.causal = Causal::bottom_right}, 0, 1, 3, 3);
  std::printf(
      "%zu rules; on %s entropy %.3f nats over %lld keys, of which row 1 sees %lld; error %.1e\n",
      rule_catalogue().size(), active_target().c_str(), state.statistics[0].entropy,
      static_cast<long long>(state.statistics[0].support), static_cast<long long>(row.keys.size()),
      error);
  return state.statistics[0].support == 3 && row.keys.size() == 2 &&
                 length_of({}, row.length) == 2 && error * error < 1e-10
             ? 0
             : 1;
}
