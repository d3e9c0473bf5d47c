// A user of the C++ interface.

#include <cstdio>

#include "isentrope/attention_state.h"

int main() {
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const auto view = isentrope::contiguous_view<const float, 4>(numbers, {1, 1, 3, 2});
  const isentrope::AttentionState state = isentrope::attention_state(
      {.q = view, .k = view, .v = view}, {.rule = isentrope::ScaleRule::entropy_invariant()});
  std::printf("entropy %.3f nats over %lld keys\n", state.statistics[0].entropy,
              static_cast<long long>(state.statistics[0].support));
  return state.statistics[0].support == 3 ? 0 : 1;
}
