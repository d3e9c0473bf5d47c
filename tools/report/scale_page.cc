// Page of isentrope scale --report.

#include <fmt/core.h>

#include "isentrope/rule_catalogue.h"
#include "tools/report/assets.h"
#include "tools/report/law_charts.h"
#include "tools/report/law_pages.h"
#include "tools/report/line_chart.h"
#include "tools/report/page.h"

namespace isentrope::report {
namespace {

Table rule_table(const std::vector<ScaleRule>& rules) {
  Table table;
  table.columns = {"rule", "lambda", "length n", "source"};
  TableGroup group;
  for (const ScaleRule& rule : rules) {
    std::string formula, counts, source;
    for (const ScaleRule::Term& term : rule.terms()) {
      const RuleInfo& info = *find_rule(term.name);
      formula.append(formula.empty() ? "" : "; times the factor of ").append(info.formula);
      const std::string count = counted(info, term.form);
      if (!count.empty()) counts.append(counts.empty() ? "" : "; ").append(count);
      source.append(source.empty() ? "" : "; ").append(info.source);
    }
    group.rows.push_back({Text().code(rule.text()), {Text().symbol(formula), counts, source}});
  }
  table.groups.push_back(std::move(group));
  return table;
}

}  // namespace

std::string scale_page(const std::vector<ScaleRule>& rules,
                       const std::vector<std::int64_t>& lengths, std::int64_t dim,
                       std::int64_t head) {
  const Comparison comparison{rules, lengths, dim, head};
  Page page("Softmax scale by length", fmt::format("Head dimension {}.", dim));
  page.table(rule_table(rules)).plot(line_plot(scale_chart(comparison)));
  page.markup(part_of(assets::prose_html, "scale"));
  for (const auto& chart :
       {entropy_chart(comparison), mass_chart(comparison), starved_chart(comparison)}) {
    if (!chart.empty()) page.plot(line_plot(chart));
  }
  return page.html();
}

}  // namespace isentrope::report
