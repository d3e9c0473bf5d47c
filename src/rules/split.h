// Splits text at separators outside brackets.
#pragma once

#include <cctype>
#include <string_view>
#include <vector>

namespace isentrope {

inline std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

// Returns the parts between separators outside () and [], trimmed.
inline std::vector<std::string_view> split_outside_brackets(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (depth == 0 && text[i] == separator)) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    } else {
      depth += (text[i] == '(' || text[i] == '[') - (text[i] == ')' || text[i] == ']');
    }
  }
  return parts;
}

}  // namespace isentrope
