// Text about rules: their signatures, and the most likely meaning of a misspelt word.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "isentrope/rule_catalogue.h"
#include "src/rules/number_text.h"
#include "src/rules/text.h"

namespace isentrope {

std::string signature(const RuleInfo& rule) {
  std::string text(rule.name);
  for (const RuleParameter& parameter : rule.parameters) {
    text += &parameter == rule.parameters.data() ? '(' : ',';
    text += parameter.name;
    text += '=';
    if (std::isnan(parameter.fallback)) {
      text += "...";
    } else {
      text += parameter.kind == ParameterKind::growth
                  ? growth_name(static_cast<Growth>(parameter.fallback))
                  : number_text(parameter.fallback);
    }
  }
  return rule.parameters.empty() ? text : text + ')';
}

std::string counted(const RuleInfo& rule, const ClosedForm& form) {
  const LengthPolicy& length = form.length;
  const bool fixed = length.source == LengthSource::fixed;
  if (form.growth == Growth::one || (fixed && rule.counts.empty())) return "";
  if (rule.counts.starts_with(source_name(length.source))) return std::string(rule.counts);
  return (fixed ? number_text(length.fixed) : std::string(source_name(length.source))) +
         ": as given";
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::vector<std::size_t> row;
  for (const std::string_view candidate : candidates) {
    // Levenshtein's distance, one row of the table at a time.
    row.resize(candidate.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (const char letter : word) {
      std::size_t diagonal = row[0]++;
      for (std::size_t j = 1; j < row.size(); ++j) {
        const std::size_t replaced = diagonal + (candidate[j - 1] != letter);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best = candidate;
      best_distance = row.back();
    }
  }
  return best;
}

}  // namespace isentrope
