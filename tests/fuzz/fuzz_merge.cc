// Fuzz target: merge trees of states against a row's raw state, and parsing of arbitrary bytes.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "isentrope/attention_state.h"
#include "isentrope/error.h"
#include "tests/fuzz/byte_source.h"

namespace isentrope::fuzz {
namespace {

// Returns the state of one row with one key.
AttentionState state_of(double logit, double distance, float value) {
  AttentionState state({1, 1, 1, 1});
  state.statistics[0] = finalize(row_state_of(logit, distance));
  state.output[0] = logit == -std::numeric_limits<double>::infinity() ? std::nanf("") : value;
  return state;
}

bool near(double a, double b, double tolerance) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance;
}

void run_tree(ByteSource bytes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RowState whole;
  std::vector<AttentionState> stack{AttentionState({1, 1, 1, 1})};
  while (!bytes.empty()) {
    if (bytes.flag() && stack.size() > 1) {
      const AttentionState last = stack.back();
      stack.pop_back();
      require(to_bytes(merge(last, stack.back())) == to_bytes(merge(stack.back(), last)),
              "merge does not commute");
      stack.back() = merge(stack.back(), last);
      continue;
    }
    const double logit = bytes.flag() ? bytes.one_of<double>({0.0, -0.0, 1e-300, 700.0, -745.0, 1e4,
                                                              -kInfinity, NAN, kInfinity})
                                      : static_cast<double>(bytes.byte()) - 128;
    const double distance = bytes.byte();
    whole = merge(whole, row_state_of(logit, distance));
    stack.push_back(state_of(logit, distance, 1));
  }
  AttentionState merged({1, 1, 1, 1});
  for (const AttentionState& state : stack) merged = merge(merged, state);
  const RowStats got = merged.statistics[0], want = finalize(whole);
  const double size =
      1 + (std::isfinite(want.lse) ? std::abs(want.lse) : 0) + static_cast<double>(want.support);
  require(got.support == want.support && near(got.max_logit, want.max_logit, 0),
          "support or largest logit");
  require(near(got.lse, want.lse, 1e-14 * size), "lse");
  require(near(got.entropy, want.entropy, 1e-12 * size), "entropy");
  require(near(got.collision, want.collision, 1e-12 * size), "collision");
  require(near(got.max_probability, want.max_probability, 1e-12 * size), "max_probability");
  require(near(got.distance, want.distance, 1e-9 * size), "distance");
  // Both sum squares of logit differences; the raw state shifts them first.
  require(near(got.variance, want.variance, 1e-12 * size * size * size), "variance");
  if (want.support > 0 && !std::isnan(want.entropy))
    require(near(merged.output[0], 1, 1e-5), "output");
}

void run_bytes(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const AttentionState state = state_from_bytes(bytes);
    const std::vector<std::byte> again = to_bytes(state);
    require(again.size() == size && std::memcmp(again.data(), data, size) == 0,
            "bytes do not come back");
    (void)merge(state, state);
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace isentrope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size <= 512) isentrope::fuzz::run_tree({data, size});
  isentrope::fuzz::run_bytes(data, size);
  return 0;
}
