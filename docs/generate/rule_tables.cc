#include <fmt/core.h>

#include <cmath>

#include "docs/generate/tables.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"

namespace isentrope::docs {
namespace {

std::string length_of(const RuleInfo& rule) {
  const auto colon = rule.counts.find(':');
  if (rule.counts.empty()) return "–";
  return fmt::format("`{}`{}", rule.counts.substr(0, colon), rule.counts.substr(colon));
}

std::string catalogue_table() {
  Rows rows = {{"rule", "lambda", "at n = 1", "length n", "take it for", "source"}};
  for (const RuleInfo& rule : rule_catalogue()) {
    rows.push_back({"`" + signature(rule) + "`", "`" + std::string(rule.formula) + "`",
                    std::string(rule.at_one), length_of(rule), std::string(rule.use),
                    std::string(rule.source)});
  }
  return markdown_table(rows);
}

std::string factor_table() {
  constexpr std::int64_t kDim = 128;
  const std::vector<std::int64_t> lengths = {1, 16, 64, 512, 4096, 16384, 131072, 1048576};
  Rows rows = {{"rule"}};
  for (const std::int64_t n : lengths) rows.front().push_back(fmt::format("n = {}", n));
  for (const ScaleRule& rule : ScaleRule::all()) {
    rows.push_back({"`" + rule.text() + "`"});
    for (const std::int64_t n : lengths) {
      rows.back().push_back(
          fmt::format("{:.4g}", rule.lambda({n, n - 1, n}, kDim) * std::sqrt(kDim)));
    }
  }
  return markdown_table(rows);
}

}  // namespace

std::map<std::string, std::string> rule_tables() {
  return {{"rules", catalogue_table()}, {"factors", factor_table()}};
}

}  // namespace isentrope::docs
