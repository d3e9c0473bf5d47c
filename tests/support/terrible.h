// Invalid values, and requirements for the response.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "isentrope/error.h"

namespace isentrope {

inline constexpr std::int64_t kLeastInteger = std::numeric_limits<std::int64_t>::min(),
                              kMostInteger = std::numeric_limits<std::int64_t>::max();
inline constexpr std::array kTerribleIntegers = {kLeastInteger,
                                                 kLeastInteger + 1,
                                                 -(std::int64_t{1} << 62),
                                                 -(std::int64_t{1} << 31) - 1,
                                                 std::int64_t{-2},
                                                 std::int64_t{-1},
                                                 std::int64_t{0},
                                                 std::int64_t{1},
                                                 std::int64_t{3},
                                                 std::int64_t{1} << 31,
                                                 std::int64_t{1} << 32,
                                                 (std::int64_t{1} << 53) + 1,
                                                 std::int64_t{1} << 62,
                                                 kMostInteger - 1,
                                                 kMostInteger};
inline constexpr std::array kTerribleNumbers = {std::numeric_limits<double>::quiet_NaN(),
                                                std::numeric_limits<double>::infinity(),
                                                -std::numeric_limits<double>::infinity(),
                                                std::numeric_limits<double>::max(),
                                                std::numeric_limits<double>::lowest(),
                                                std::numeric_limits<double>::denorm_min(),
                                                -1.0,
                                                -0.3,
                                                -0.0,
                                                0.0,
                                                1.0,
                                                1e-300,
                                                1e19,
                                                1e39};
inline const std::vector<std::string> kTerribleTexts = {
    "",
    " ",
    "nonsense",
    "\xff\xfe",
    std::string("logn\0(3)", 8),
    "logn(",
    "logn(1e999)",
    "[[[[[[[[[[",
    "{}",
    "null",
    "logn(99999999999999999999999999)",
    "ssmax(s=[])",
    std::string(100'000, 'x'),
    std::string(100'000, '['),
    "{\"rule\":5}",
    "{\"product\":[]}",
    "{\"num_attention_heads\":0,\"hidden_size\":64,\"model_type\":5}",
    "{\"head_dim\":1e400}",
    "{\"head_dim\":99999999999999999999}"};

// Returns whether a message contains one of the names, "q|k|v", as a word, and is readable.
inline testing::AssertionResult says(const std::string& message, const std::string& names) {
  if (message.size() > 5000)
    return testing::AssertionFailure() << "a message of " << message.size() << " characters";
  const testing::Matcher<std::string> named =
      testing::ContainsRegex("(^|[^[:alnum:]_])(" + names + ")([^[:alnum:]_]|$)");
  if (named.Matches(message)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << message << "\n  names none of " << names;
}

// Runs the call: it must work, or throw an Error with one of the names.
template <typename Call>
void expect_an_answer(const std::string& names, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), names));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "no Error of Isentrope: " << error.what();
  }
}

}  // namespace isentrope
