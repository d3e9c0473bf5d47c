#include "tools/lab/model_rule.h"

namespace isentrope::lab {
namespace {

constexpr std::string_view kLearned = "learned(", kUnit = "unit(";

// If `text` is `opening` ... ")", removes both and returns true.
bool unwrap(std::string_view& text, std::string_view opening) {
  if (!text.starts_with(opening) || !text.ends_with(')')) return false;
  text.remove_prefix(opening.size());
  text.remove_suffix(1);
  return true;
}

}  // namespace

std::string ModelRule::text() const {
  std::string text = rule.text();
  if (unit) text = std::string(kUnit) + text + ")";
  if (learned) text = std::string(kLearned) + text + ")";
  return text;
}

ModelRule ModelRule::parse(std::string_view text) {
  const bool learned = unwrap(text, kLearned), unit = unwrap(text, kUnit);
  return {ScaleRule::parse(text), learned, unit};
}

std::vector<ModelRule> default_rules() {
  return {{ScaleRule::standard()}, {ScaleRule::entropy_invariant(512)}};
}

}  // namespace isentrope::lab
