// The kernels' random bits on every instruction set, against Random123's known answers.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/src/call/philox_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/cpu/steps/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

using Four = std::array<std::uint32_t, 4>;

// Returns the words of the counters, assigned to lanes in turn.
std::vector<Four> words_of(const std::vector<Four>& counters,
                           const std::array<std::uint32_t, 2>& seed) {
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint32_t columns[4][hn::MaxLanes(d)];
  std::vector<Four> words;
  for (std::size_t first = 0; first < counters.size(); first += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t word = 0; word < 4; ++word)
        columns[word][lane] = counters[(first + lane) % counters.size()][word];
    }
    hn::Vec<Words> a = hn::Load(d, columns[0]), b = hn::Load(d, columns[1]),
                   c = hn::Load(d, columns[2]), e = hn::Load(d, columns[3]);
    philox(seed, a, b, c, e);
    hn::Store(a, d, columns[0]);
    hn::Store(b, d, columns[1]);
    hn::Store(c, d, columns[2]);
    hn::Store(e, d, columns[3]);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      words.push_back({columns[0][lane], columns[1][lane], columns[2][lane], columns[3][lane]});
    }
  }
  words.resize(counters.size());
  return words;
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include "tests/support/on_target.h"

namespace isentrope {
namespace {

HWY_EXPORT(words_of);

using Four = std::array<std::uint32_t, 4>;

class Philox : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(Philox);

// Source: kat_vectors of Random123 1.14.
TEST_P(Philox, GivesTheKnownAnswers) {
  const auto words = [](const Four& counter, const std::array<std::uint32_t, 2>& seed) {
    return HWY_DYNAMIC_DISPATCH(words_of)(std::vector<Four>{counter}, seed).front();
  };
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(words({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({ones, ones, ones, ones}, {ones, ones}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST_P(Philox, EveryLaneHasACounterOfItsOwn) {
  std::vector<Four> counters;
  for (std::uint32_t i = 0; i < 64; ++i) counters.push_back({i, i * 0x9e3779b9u, ~i, i << 20});
  const auto together = HWY_DYNAMIC_DISPATCH(words_of)(counters, {7, 11});
  for (std::size_t i = 0; i < counters.size(); ++i) {
    EXPECT_EQ(together[i],
              HWY_DYNAMIC_DISPATCH(words_of)(std::vector<Four>{counters[i]}, {7, 11}).front());
  }
}

}  // namespace
}  // namespace isentrope
#endif  // HWY_ONCE
