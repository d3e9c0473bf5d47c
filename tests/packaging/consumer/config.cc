// Uses rules as JSON.

#include <cstdio>

#include "isentrope/config/scale_rule_json.h"

int main() {
  const auto rule = isentrope::scale_rule_from_json(R"({"rule": "entropy_invariant", "base": 64})");
  const auto model = isentrope::scale_of_config(R"({"head_dim": 64})");
  std::printf("%s; %s\n", isentrope::to_json(rule).c_str(), model.rule.text().c_str());
  return rule == isentrope::ScaleRule::entropy_invariant(64) && model.dim == 64 ? 0 : 1;
}
