// Searches in texts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace isentrope {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_TRUE(has(text, word)) << word << "\nis not in\n" << text.substr(0, 10'000);
}

}  // namespace isentrope
