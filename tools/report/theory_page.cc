// Page of isentrope theory report. Its prose is theory.html.

#include <fmt/core.h>

#include <random>

#include "isentrope/error.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/variance.h"
#include "tools/report/assets.h"
#include "tools/report/law_charts.h"
#include "tools/report/law_pages.h"
#include "tools/report/line_chart.h"
#include "tools/report/page.h"

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

// Table of the assumptions behind 1/sqrt(d): where they hold, and where one fails.
Table variance_table(std::int64_t dim) {
  const auto count = static_cast<std::size_t>(1024 * dim);
  TableGroup group;
  for (const auto& [name, deviation] :
       {std::pair{"standard normal", 1.0}, std::pair{"k twice as wide", 2.0}}) {
    const auto result =
        theory::check_score_variance(sample(count, 1, 1), sample(count, deviation, 2), dim);
    group.rows.push_back(
        {name,
         {fmt::format("{:.2f}", result.score_variance), fmt::format("{:.4f}", result.lambda),
          fmt::format("{:.4f}", result.standard_lambda), result.holds ? "yes" : "no"}});
  }
  return {{}, {"components", "Var(q.k)", "1/sqrt(Var)", "1/sqrt(d)", "assumptions hold"}, {group}};
}

// Table of bases at which rows of two lengths have the same entropy.
Table base_table(std::int64_t dim) {
  TableGroup group;
  for (const auto& [from, to] :
       {std::pair{64., 1024.}, std::pair{512., 4096.}, std::pair{512., 131072.}}) {
    TableRow row{fmt::format("{} to {}", from, to), {"none", "", ""}};
    try {
      const auto law = theory::entropy_base(from, to, dim);
      row.cells = {fmt::format("{:.3f}", law.base), fmt::format("{:.3f}", law.kappa),
                   fmt::format("{:.3f}", law.entropy)};
    } catch (const Error&) {  // no base exists for few dimensions
    }
    group.rows.push_back(row);
  }
  return {{}, {"lengths", "base", "kappa", "entropy"}, {group}};
}

// Table of each rule for unit-variance scores at a few lengths: factor, mean gradient mass and
// starved rows.
Table rule_table(std::int64_t dim) {
  Table table;
  const std::vector<std::int64_t> lengths = {64, 512, 4096, 65536};
  table.columns = {"rule, tied to 512 keys"};
  for (const std::int64_t n : lengths) table.columns.push_back(fmt::format("n = {}", n));
  const Comparison comparison{ScaleRule::all(512), lengths, dim, 0};
  TableGroup group;
  for (const ScaleRule& rule : comparison.rules)
    group.rows.push_back({Text().code(rule.text()), {}});
  for (const std::int64_t n : lengths) {
    const auto spreads = comparison.spreads(n);
    for (std::size_t i = 0; i < spreads.size(); ++i) {
      Text cell(fmt::format("{:.3g}", comparison.alpha(comparison.rules[i], n)));
      if (spreads[i]) {
        cell.small(fmt::format("mass {:.2f}, starved {:.0f} %", spreads[i]->mean,
                               100 * spreads[i]->starved));
      }
      group.rows[i].cells.push_back(cell);
    }
  }
  table.groups.push_back(std::move(group));
  return table;
}

}  // namespace

std::string theory_page(std::int64_t dim) {
  const auto d = static_cast<double>(dim);
  const Comparison comparison{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::log_length(),
       ScaleRule::scaled({2.5}), ScaleRule::grad_max_normal(), ScaleRule::logn(512),
       ScaleRule::infoscale(), ScaleRule::dynamic_yarn(512)},
      {16, 64, 256, 512, 1024, 4096, 16384, 65536, 262144},
      dim,
      0};
  const std::string head = std::to_string(dim);
  Page page("Why the softmax scale should depend on the length",
            Text::markup(part_of(assets::theory_html, "summary", {{"d", head}})));
  const auto says = [&](const char* name, const Words& words = {}) -> Page& {
    return page.markup(part_of(assets::theory_html, name, words));
  };
  const auto draws = [&](const LineChart& chart) { page.plot(line_plot(chart)); };

  says("variance").table(variance_table(dim));
  const std::string slope = fmt::format("{:.5f}", theory::laplace_coefficient());
  says("entropy", {{"slope", slope}});
  draws(entropy_law_chart(512, dim));
  draws(entropy_chart(comparison));
  says("bases").table(base_table(dim));
  const std::string matched = fmt::format("{:.0f}", theory::matched_dimension(65536, d));
  says("dimension", {{"d", head}, {"matched", matched}});
  draws(dimension_chart(d));
  says("gradient");
  draws(normal_optimum_chart());
  draws(cosine_optimum_chart(kFigureDim));
  draws(coefficient_chart());
  says("rules");
  draws(scale_chart(comparison));
  draws(mass_chart(comparison));
  draws(starved_chart(comparison));
  says("table").table(rule_table(dim));
  page.footer(Text::markup(part_of(assets::theory_html, "written")));
  return page.html();
}

}  // namespace isentrope::report
