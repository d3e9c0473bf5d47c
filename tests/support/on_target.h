// Tests that run on every instruction set this machine has.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "isentrope/target.h"

namespace isentrope {

class TargetTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    use_target(GetParam());
    ASSERT_EQ(active_target(), GetParam());
  }
  void TearDown() override { use_target(supported_targets().front()); }
};

#define ISENTROPE_ON_EVERY_TARGET(Fixture)                                         \
  INSTANTIATE_TEST_SUITE_P(All, Fixture, ::testing::ValuesIn(supported_targets()), \
                           [](const auto& target) { return target.param; })

}  // namespace isentrope
