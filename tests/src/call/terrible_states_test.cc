// States with invalid extents, sinks and bytes: an Error with the argument's name, or success.

#include <cstring>

#include "isentrope/attention_state.h"
#include "tests/support/terrible.h"

namespace isentrope {
namespace {

TEST(TerribleStates, AreRefusedByName) {
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    for (std::size_t axis = 0; axis < 4; ++axis) {
      std::array<std::int64_t, 4> shape{1, 1, 1, 1};
      shape[axis] = value;
      // In between, only memory is the limit.
      if (value < 0 || value > std::int64_t{1} << 48) {
        EXPECT_THROW(AttentionState{shape}, Error);
      } else if (value < 10) {
        expect_an_answer("shape|a|b",
                         [&] { (void)merge(AttentionState(shape), AttentionState({1, 1, 1, 1})); });
      }
    }
    const AttentionState state({2, 4, 5, 8});
    const std::array<float, 4> sinks{};
    auto view = contiguous_view<const float, 1>(sinks.data(), {4});
    view.extents[0] = value;
    expect_an_answer("sinks", [&] { (void)with_sinks(state, view); });
    std::vector<std::byte> bytes = to_bytes(state);
    for (std::size_t at = 0; at < 48; at += 8) {
      std::vector<std::byte> damaged = bytes;
      std::memcpy(damaged.data() + at, &value, sizeof value);
      expect_an_answer("bytes|state|version|extent|row|elements",
                       [&] { (void)state_from_bytes(damaged); });
    }
  }
}

}  // namespace
}  // namespace isentrope
