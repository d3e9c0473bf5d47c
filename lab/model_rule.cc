#include "lab/model_rule.h"

namespace isentrope::lab {
namespace {

constexpr std::string_view kLearned = "learned(";

}  // namespace

std::string ModelRule::text() const {
  return learned ? std::string(kLearned) + rule.text() + ")" : rule.text();
}

ModelRule ModelRule::parse(std::string_view text) {
  if (!text.starts_with(kLearned) || !text.ends_with(')')) return {ScaleRule::parse(text)};
  text.remove_prefix(kLearned.size());
  text.remove_suffix(1);
  return {ScaleRule::parse(text), true};
}

std::vector<std::string_view> split_rules(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (i < text.size() && (c != ',' || depth > 0)) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

}  // namespace isentrope::lab
