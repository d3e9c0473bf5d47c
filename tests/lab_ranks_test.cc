// What ranks tell each other, and which of them trains what. That they train: lab_torchrun_test.py.

#include <gtest/gtest.h>

#include <set>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <tuple>

#include "lab/dealing.h"
#include "lab/interrupt.h"
#include "lab/ranks.h"

namespace isentrope::lab {
namespace {

using namespace std::chrono_literals;

class RanksTest : public testing::Test {
 protected:
  Ranks rank(std::int64_t rank, std::chrono::milliseconds patience = 60s) {
    return {rank, 2, 2, [store = store_] { return store; }, patience};
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(RanksTest, MessagesArriveInOrderAndWhole) {
  Ranks first = rank(0), second = rank(1);
  EXPECT_FALSE(first.receive(1));
  // Longer than a value of the store may be, with every byte in it.
  std::string content(std::size_t{9} << 20, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 8);
  second.send(0, {{{"number", 1}, {"text", "line\nof\xff"}}, content});
  second.send(0, {{{"number", 2}}});
  const RankMessage one = first.wait_for(1), two = first.wait_for(1);
  EXPECT_EQ(one.head.at("number"), 1);
  EXPECT_EQ(one.head.at("text").get<std::string>().substr(0, 7), "line\nof");
  EXPECT_TRUE(one.content == content);
  EXPECT_EQ(two.head.at("number"), 2);
  EXPECT_EQ(two.content, "");
  EXPECT_FALSE(first.receive(1));
}

TEST_F(RanksTest, NoTwoTakeTheSame) {
  Ranks first = rank(0), second = rank(1);
  std::set<std::int64_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert({first.take(), second.take()});
  EXPECT_EQ(taken, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(RanksTest, ARankThatDoesNotStirIsLost) {
  Ranks first = rank(0, 200ms);
  try {
    (void)first.wait_for(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[ranks] rank 1 must stir every second; got nothing for 0.2 s");
  }
  Ranks second = rank(1);
  for (int i = 0; i < 300 && first.silence(1) >= 200ms; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_LT(first.silence(1), 200ms);
}

TEST_F(RanksTest, AFailureIsHeardAndInterrupts) {
  Ranks first = rank(0), second = rank(1);
  EXPECT_FALSE(interrupted());
  second.fail(Error("no room"));
  first.fail(Error("a later one"));
  EXPECT_EQ(first.failure(), "rank 1: no room");
  EXPECT_THROW((void)first.wait_for(1), RankFailure);
  for (int i = 0; i < 300 && !interrupted(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(interrupted());
}

// Whatever there is to deal out, all ranks of a group agree on who is in it.
TEST(Deal, GivesEveryTrainingAGroup) {
  for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
    for (std::size_t trainings = 1; trainings <= 9; ++trainings) {
      const Deal deal{std::vector<std::size_t>(trainings), ranks, 3};
      std::set<std::tuple<std::int64_t, std::int64_t>> seats;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto [group, member, members] = deal.seat(rank);
        EXPECT_GE(members, 1);
        EXPECT_LE(members, 3);
        const bool is_new = member >= members || seats.emplace(group, member).second;
        EXPECT_TRUE(is_new);
      }
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto [group, member, members] = deal.seat(rank);
        for (std::int64_t other = 0; other < members; ++other)
          EXPECT_TRUE(seats.contains({group, other}));
        EXPECT_FALSE(seats.contains({group, members}));
      }
      EXPECT_EQ(deal.groups(), std::min(ranks, static_cast<std::int64_t>(trainings)));
      EXPECT_TRUE(seats.contains({deal.groups() - 1, 0}));
    }
  }
}

}  // namespace
}  // namespace isentrope::lab
