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

std::vector<ModelRule> default_rules() {
  return {{ScaleRule::standard()}, {ScaleRule::entropy_invariant(512)}};
}

}  // namespace isentrope::lab
