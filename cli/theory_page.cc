// The page of isentrope theory report.

#include <fmt/core.h>

#include <cmath>
#include <random>

#include "cli/charts.h"
#include "cli/pages.h"
#include "isentrope/error.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/variance.h"
#include "report/line_chart.h"
#include "report/page.h"

namespace isentrope::cli {
namespace {

using report::Page;
using report::Table;
using report::TableGroup;
using report::Text;

constexpr const char* kEntropyUrl = "https://kexue.fm/archives/8823";
constexpr const char* kLemmaUrl = "https://kexue.fm/archives/9588";
constexpr const char* kGradientUrl = "https://kexue.fm/archives/9812";
constexpr std::int64_t kFigureDim = 128;  // of Su's cosine figure

std::vector<double> sample(std::size_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> numbers(count);
  for (double& value : numbers) value = normal(random);
  return numbers;
}

void add_variance(Page& page, std::int64_t dim) {
  page.heading("Unit variance: 1/sqrt(d)");
  page.prose(
      Text("If the components of q and k are independent, with mean 0 and variance 1, then ")
          .symbol("Var(q.k) = d")
          .plain(
              " and 1/sqrt(d) gives the logits unit variance (Vaswani et al. 2017; Chuang 2023). "
              "The number of keys does not enter. Sampled, and where one assumption fails:"));
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
  page.table(
      {{}, {"components", "Var(q.k)", "1/sqrt(Var)", "1/sqrt(d)", "assumptions hold"}, {group}});
}

void add_entropy(Page& page, const Comparison& comparison) {
  const std::int64_t dim = comparison.dim;
  page.heading("Constant entropy: ln n");
  page.prose(Text("A row over n keys spreads as n grows, unless the scale grows with it. For keys "
                  "on the sphere of radius "
                  "sqrt(d), ")
                 .link("Su 2021", kEntropyUrl)
                 .plain(" finds ")
                 .symbol("H = ln n - 0.24 lambda d + O(1)")
                 .plain(", so that ")
                 .symbol("lambda = kappa ln n / d")
                 .plain(" holds the entropy. The 0.24 is half the logarithm of the golden ratio, ")
                 .symbol(fmt::format("{:.5f}", theory::laplace_coefficient()))
                 .plain(": the slope that Laplace's method gives at lambda = 1. At lambda = "
                        "1/sqrt(d) the slope is smaller, "
                        "and the estimate falls faster than the law."));
  page.plot(report::line_plot(entropy_law_chart(512, dim)))
      .plot(report::line_plot(entropy_chart(comparison)));
  TableGroup group;
  for (const auto& [from, to] :
       {std::pair{64., 1024.}, std::pair{512., 4096.}, std::pair{512., 131072.}}) {
    try {
      const auto held = theory::entropy_base(from, to, dim);
      group.rows.push_back({fmt::format("{} to {}", from, to),
                            {fmt::format("{:.3f}", held.base), fmt::format("{:.3f}", held.kappa),
                             fmt::format("{:.3f}", held.entropy)}});
    } catch (const Error&) {  // no base does it, for few dimensions
      group.rows.push_back({fmt::format("{} to {}", from, to), {"none", "", ""}});
    }
  }
  page.prose(Text("The base B at which ")
                 .symbol("log_B(n)/sqrt(d)")
                 .plain(" gives rows of two lengths exactly the same entropy. It is smaller than "
                        "512: random keys must be told apart more "
                        "sharply than those of a trained model, whose scores vary more."));
  page.table({{}, {"lengths", "base", "kappa", "entropy"}, {group}});
}

void add_dimension(Page& page, std::int64_t dim) {
  page.heading("Room for n keys: 8 ln n");
  page.prose(
      Text("By the Johnson-Lindenstrauss lemma n vectors fit in O(ln n) dimensions, about 8 ln n (")
          .link("Su 2023", kLemmaUrl)
          .plain(fmt::format(
              "). A head of {} dimensions that suits 512 keys should have {:.0f} for 65536; "
              "multiplying its "
              "logits by log_512 n is the cheap alternative, and the same rule once more.",
              dim, theory::matched_dimension(65536, static_cast<double>(dim)))));
  page.plot(report::line_plot(dimension_chart(static_cast<double>(dim))));
}

void add_gradient(Page& page) {
  page.heading("Most gradient: sqrt(ln n) and ln n");
  page.prose(Text("Half the L1 norm of the softmax Jacobian is ")
                 .symbol("alpha (1 - sum p^2)")
                 .plain(": nothing at alpha = 0, where keys are alike, and nothing for large "
                        "alpha, where one key has all weight. "
                        "In between lies a largest value (")
                 .link("Su 2023", kGradientUrl)
                 .plain("). For normal scores it is at ")
                 .symbol("alpha* = sqrt(W(n sqrt(e)/2) - 1/2)")
                 .plain(", W Lambert's function, close to 0.84 sqrt(ln n), and 2.5 is a "
                        "compromise. For cosine scores it grows as "
                        "ln n, with a coefficient that depends on d: temperatures of contrastive "
                        "losses near 1/30 follow."));
  page.plot(report::line_plot(normal_optimum_chart()))
      .plot(report::line_plot(cosine_optimum_chart(kFigureDim)));
  page.plot(report::line_plot(coefficient_chart()));
}

// Every rule of unit-variance scores at a few lengths: its factor, mean gradient mass and starved
// rows.
Table rule_table(std::int64_t dim) {
  Table table;
  const std::vector<std::int64_t> lengths = {64, 512, 4096, 65536};
  table.columns = {"rule, tied to 512 keys"};
  for (const std::int64_t n : lengths) table.columns.push_back(fmt::format("n = {}", n));
  Comparison comparison{ScaleRule::all(512), lengths, dim, 0};
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

void add_rules(Page& page, const Comparison& comparison) {
  page.heading("The rules side by side");
  page.prose(Text("All of these are one closed form with different numbers. ")
                 .symbol("ln n/sqrt(d)")
                 .plain(" is far sharper than the rest: its mean gradient mass stays high, but "
                        "only because a few rows with two nearly "
                        "equal keys let everything through. The share of rows that let nothing "
                        "through grows with n, while with ")
                 .symbol("log_512(n)/sqrt(d)")
                 .plain(" there are none. The base matters."));
  for (const auto& chart :
       {scale_chart(comparison), mass_chart(comparison), starved_chart(comparison)}) {
    page.plot(report::line_plot(chart));
  }
  page.prose(
      "Each rule's lambda sqrt(d), with the mean gradient mass and the share of starved rows of "
      "sampled normal scores. Rules for "
      "unit q and k, as cosine, appear too, though their scores are not these.");
  page.table(rule_table(comparison.dim));
}

}  // namespace

std::string theory_page(std::int64_t dim) {
  const Comparison comparison{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::log_length(),
       ScaleRule::scaled({2.5}), ScaleRule::grad_max_normal(), ScaleRule::logn(512),
       ScaleRule::infoscale(), ScaleRule::dynamic_yarn(512)},
      {16, 64, 256, 512, 1024, 4096, 16384, 65536, 262144},
      dim,
      0};
  Page page(
      "Why the softmax scale should know the length",
      fmt::format(
          "Four derivations of the scale of attention, computed for a head dimension of {}.", dim));
  add_variance(page, dim);
  add_entropy(page, comparison);
  add_dimension(page, dim);
  add_gradient(page);
  add_rules(page, comparison);
  page.footer("Written by isentrope theory report.");
  return page.html();
}

}  // namespace isentrope::cli
