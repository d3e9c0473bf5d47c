// Pages of isentrope scale --report and isentrope theory report.

#include <fmt/core.h>

#include <random>

#include "isentrope/error.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/variance.h"
#include "tools/report/law_charts.h"
#include "tools/report/line_chart.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

constexpr std::int64_t kFigureDim = 128;  // head dimension of Su's cosine figure

std::vector<double> sample(std::size_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> numbers(count);
  for (double& value : numbers) value = normal(random);
  return numbers;
}

// Table of each rule's formula, which length it counts, and its source.
Table sources_table(const std::vector<ScaleRule>& rules) {
  Table table{{}, {"rule", "lambda", "length n", "source"}, {}};
  for (const ScaleRule& rule : rules) {
    std::string formula, counts, source;
    const auto append = [](std::string& to, const char* between, std::string_view text) {
      if (!text.empty()) to.append(to.empty() ? "" : between).append(text);
    };
    for (const ScaleRule::Term& term : rule.terms()) {
      const RuleInfo& info = *find_rule(term.name);
      append(formula, "; times the factor of ", info.formula);
      append(counts, "; ", counted(info, term.form));
      append(source, "; ", info.source);
    }
    table.add(Text().code(rule.text()), {Text().symbol(formula), counts, source});
  }
  return table;
}

// Table of the assumptions behind 1/sqrt(d): where they hold, and where one fails.
Table variance_table(std::int64_t dim) {
  const auto count = static_cast<std::size_t>(1024 * dim);
  Table table{{}, {"components", "Var(q.k)", "1/sqrt(Var)", "1/sqrt(d)", "assumptions hold"}, {}};
  for (const auto& [name, deviation] :
       {std::pair{"standard normal", 1.0}, std::pair{"k twice as wide", 2.0}}) {
    const auto result =
        theory::check_score_variance(sample(count, 1, 1), sample(count, deviation, 2), dim);
    table.add(name,
              {fmt::format("{:.2f}", result.score_variance), fmt::format("{:.4f}", result.lambda),
               fmt::format("{:.4f}", result.standard_lambda), result.holds ? "yes" : "no"});
  }
  return table;
}

// Table of bases at which rows of two lengths have the same entropy.
Table base_table(std::int64_t dim) {
  Table table{{}, {"lengths", "base", "kappa", "entropy"}, {}};
  for (const auto& [from, to] :
       {std::pair{64., 1024.}, std::pair{512., 4096.}, std::pair{512., 131072.}}) {
    std::vector<Text> cells = {"none", "", ""};
    try {
      const auto law = theory::entropy_base(from, to, dim);
      cells = {fmt::format("{:.3f}", law.base), fmt::format("{:.3f}", law.kappa),
               fmt::format("{:.3f}", law.entropy)};
    } catch (const Error&) {  // no base exists for few dimensions
    }
    table.add(fmt::format("{} to {}", from, to), cells);
  }
  return table;
}

// Table of each rule for unit-variance scores at a few lengths: factor, mean gradient mass and
// starved rows.
Table rule_table(std::int64_t dim) {
  const Comparison comparison{ScaleRule::all(512), {64, 512, 4096, 65536}, dim, 0};
  Table table{{}, {"rule, tied to 512 keys"}, {}};
  for (const ScaleRule& rule : comparison.rules) table.add(Text().code(rule.text()), {});
  for (const std::int64_t n : comparison.lengths) {
    table.columns.push_back(fmt::format("n = {}", n));
    const auto spreads = comparison.spreads(n);
    for (std::size_t i = 0; i < spreads.size(); ++i) {
      Text cell(fmt::format("{:.3g}", comparison.alpha(comparison.rules[i], n)));
      if (spreads[i])
        cell.small(fmt::format("mass {:.2f}, starved {:.0f} %", spreads[i]->mean,
                               100 * spreads[i]->starved));
      table.groups[0].rows[i].cells.push_back(cell);
    }
  }
  return table;
}

}  // namespace

std::string scale_page(const Comparison& comparison) {
  Page page("Softmax scale by length", fmt::format("Head dimension {}.", comparison.dim));
  page.table(sources_table(comparison.rules))
      .plot(line_plot(scale_chart(comparison)))
      .says("scale");
  for (const auto& chart :
       {entropy_chart(comparison), mass_chart(comparison), starved_chart(comparison)}) {
    if (!chart.empty()) page.plot(line_plot(chart));
  }
  return page.html();
}

std::string theory_page(std::int64_t dim) {
  const auto d = static_cast<double>(dim);
  const Comparison comparison{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::log_length(),
       ScaleRule::scaled({2.5}), ScaleRule::grad_max_normal(), ScaleRule::logn(512),
       ScaleRule::infoscale(), ScaleRule::dynamic_yarn(512)},
      {16, 64, 256, 512, 1024, 4096, 16384, 65536, 262144},
      dim,
      0};
  const Words head = {{"d", std::to_string(dim)}};
  Page page("Why the softmax scale should depend on the length",
            prose_named("theory summary", head));
  page.says("theory variance")
      .table(variance_table(dim))
      .says("theory entropy", {{"slope", fmt::format("{:.5f}", theory::laplace_coefficient())}})
      .plot(line_plot(entropy_law_chart(512, dim)))
      .plot(line_plot(entropy_chart(comparison)))
      .says("theory bases")
      .table(base_table(dim))
      .says("theory dimension",
            {{"d", std::to_string(dim)},
             {"matched", fmt::format("{:.0f}", theory::matched_dimension(65536, d))}})
      .plot(line_plot(dimension_chart(d)))
      .says("theory gradient")
      .plot(line_plot(normal_optimum_chart()))
      .plot(line_plot(cosine_optimum_chart(kFigureDim)))
      .plot(line_plot(coefficient_chart()))
      .says("theory rules")
      .plot(line_plot(scale_chart(comparison)))
      .plot(line_plot(mass_chart(comparison)))
      .plot(line_plot(starved_chart(comparison)))
      .says("theory table")
      .table(rule_table(dim))
      .footer(prose_named("theory written"));
  return page.html();
}

}  // namespace isentrope::report
