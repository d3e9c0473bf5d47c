// Prints the declarations of ScaleRule's constructors, one for each rule of the catalogue, as the
// package's rule_constructors.pyi, for type checkers and editors.

#include <cmath>
#include <iostream>

#include "bindings/torch/rule_python.h"

int main() {
  using namespace isentrope;
  std::cout << "from collections.abc import Sequence\nfrom typing import Any\n\n"
               "from isentrope.rules import PerHead, ScaleRule\n\nclass RuleConstructors:\n";
  for (const RuleInfo& rule : rule_catalogue()) {
    std::cout << "    @staticmethod\n    def " << rule.name << '(';
    for (const RuleParameter& parameter : rule.parameters) {
      std::cout << python_name(parameter.name) << ": " << python_type(parameter.kind)
                << (std::isnan(parameter.fallback) ? ", " : " = ..., ");
    }
    std::cout << "**policy: Any) -> ScaleRule:\n        \"\"\"" << description_of(rule)
              << "\"\"\"\n";
  }
}
